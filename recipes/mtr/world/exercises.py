"""Exercises in reading, beside the demonstrations: what a record says, what an error expects.

A language model can do so before it is shown any tool; random weights cannot, and correct no call
before they can. In an exercise no tool is offered and none is called: what to do about an error is
shown by demonstrations alone, where they have any.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.worlds.demonstrations import Messages, asks, says
from tasks.worlds.encyclopedia import Encyclopedia
from tasks.worlds.questions import SHAPE, other_encyclopedias

from .refused import refusal
from .roles import EDITIONS, NAMES

OF_ONE_ENCYCLOPEDIA = 96
LARGEST = 4
"""Facts of a record."""
ERRORS = 0.5


def exercises(seed: int) -> Iterator[Messages]:
    """Endless; what is read, and what it says."""
    draw = random.Random(f"exercises {seed}")
    for book, _ in other_encyclopedias(draw):
        for _ in range(OF_ONE_ENCYCLOPEDIA):
            yield _error(draw) if draw.random() < ERRORS else _record(book, draw)


def _record(book: Encyclopedia, draw: random.Random) -> Messages:
    """Its facts are said in another order than they stand in."""
    told = draw.sample(SHAPE.told, draw.randint(1, LARGEST))
    record = {one.name: draw.choice(book.entities[one.to]) for one in told}
    record["edition"] = draw.choice(EDITIONS)
    order = draw.sample(list(record), len(record))
    return _read(record, {name: record[name] for name in order})


def _error(draw: random.Random) -> Messages:
    edition = draw.choice(EDITIONS)
    name = draw.choice(NAMES).format(draw.choice(SHAPE.told).name)
    function = {"name": name, "parameters": {"properties": {"edition": {"enum": [edition]}}}}
    return _read(refusal(function), {"edition": edition})


def _read(told: Mapping[str, Any], facts: Mapping[str, str]) -> Messages:
    said = ", ".join(f"{name} of {value}" for name, value in facts.items())
    last = list(facts.values())[-1]
    return [asks(json.dumps(told)), says(f"<think>{said}</think><answer>{last}</answer>")]
