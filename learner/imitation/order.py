"""The traces of each step: a function of seed, number of traces and step alone. Pure.

With epochs every trace is shown exactly that often: the last batch has the remaining traces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np

from learner.config.tables import SftTable


def order(count: int, seed: int, position: int) -> Iterator[int]:
    """Endless order of `count` traces from a position on: a fresh permutation each epoch.

    A position is one number, so a resumed run sees the same traces as an uninterrupted run.
    """
    while True:
        epoch, start = divmod(position, count)
        permutation = np.random.default_rng((seed, epoch)).permutation(count)
        for index in permutation[start:]:
            position += 1
            yield int(index)


def steps_of(table: SftTable, count: int) -> int:
    """Optimizer steps of a run over `count` traces."""
    return math.ceil(table.shown(count) / table.batch_size)


def batches(table: SftTable, count: int, done: int) -> Iterator[list[int]]:
    """The traces of each step from step `done` on, as indices."""
    picks = order(count, table.seed, done * table.batch_size)
    for start in range(done * table.batch_size, table.shown(count), table.batch_size):
        yield list(islice(picks, min(table.batch_size, table.shown(count) - start)))
