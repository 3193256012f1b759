"""Rows made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learner.config.objective import Loss
from learner.training.batch import Row
from learner.training.minibatch import MiniBatch, counts_of
from tests.integration.learner.models import VOCABULARY


def weighed(
    rows: Sequence[Row], mode: str = "token-mean", *, drop_silent: bool = False
) -> list[Row]:
    """Rows with what each target weighs in the loss."""
    counts = counts_of(rows, drop_silent=drop_silent)
    loss = Loss(aggregation=mode)
    return MiniBatch(rows=list(rows), counts=counts, loss=loss, all_rows=True).weighed()


def make_rows(
    count: int, *, seed: int = 0, temperature: float = 1.0, longest: int = 24
) -> list[Row]:
    """Rows with two actions around an observation, ragged, with advantages of both signs."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        prompt, first, seen, last = draw.integers(2, max(3, longest // 4), size=4)
        size = int(prompt + first + seen + last)
        target = np.zeros(size, dtype=bool)
        target[prompt : prompt + first] = True
        target[-last:] = True
        rows.append(
            Row(
                trajectory=f"t{number}",
                tokens=draw.integers(0, VOCABULARY, size=size),
                target=target,
                behaviour=draw.normal(-4.0, 0.3, size=size).astype(np.float32),
                temperature=np.full(size, temperature, dtype=np.float32),
                fresh=target,
                advantage=np.full(size, draw.choice([-1.5, -0.5, 0.5, 1.0]), dtype=np.float32),
            )
        )
    return rows
