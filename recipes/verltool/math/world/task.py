"""The world of the demonstration: a freight yard, and problems that take a program of two lines.

A problem has two sentences. The first tells of a load in two numbers, the second what happens to it
in a third, and asks for what comes of that:

    412 crates hold 37 cups each. The customs keep 86. How many go on?

No sentence shows its operator. Owns the sentences, which of them training puts together, the split
of the numbers and the right answer. Invariants
- A problem depends on nothing but the seed and its position.
- No three numbers of `heldout` and `unseen_pairs` ever stand in `training`, in that order.
- `training` and `heldout` put the same sentences together, `unseen_pairs` the others.
- Every right answer is a whole number of two digits or more that is not in the problem.

It knows nothing of tokens, tools or how the policy is trained.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tasks.worlds.questions import (
    OPERATIONS,
    drawn_until,
    held_out,
    question_task,
    tasks_from,
    wordings,
)
from tasks.worlds.rounds import rounds
from toolwright.types import Task

_FILE = Path(__file__).with_name("sentences.txt")
LOADS, EVENTS = wordings(_FILE, "load"), wordings(_FILE, "event")
"""Sentences by the operator that gives the number of goods, and by the one that answers."""
GOODS = ("cups", "lamps", "chairs", "boots", "tiles", "clocks", "kettles", "mirrors")
FIRST, SECOND, THIRD = range(100, 1000), range(11, 100), range(11, 100)
"""Numbers a, b and c. A load is larger than any c."""
UNSEEN_SHARE = 4  # of the pairs of sentences, one in four is


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentences:
    """A load and what happens to it: the operators, and the texts with {a}, {b}, {c}, {goods}."""

    first: str
    load: str
    second: str
    event: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FreightProblem:
    sentences: Sentences
    a: int
    b: int
    c: int
    text: str

    @property
    def result(self) -> int:
        return compute(self.sentences.first, self.sentences.second, self.a, self.b, self.c)


def compute(first: str, second: str, a: int, b: int, c: int) -> int:
    """(a first b) second c."""
    return OPERATIONS[second](OPERATIONS[first](a, b), c)


def problems(seed: int, *, held: bool, pairs: Sequence[Sentences] = ()) -> Iterator[FreightProblem]:
    """Endless rounds; a round takes each of `pairs` (none = those of training) once."""
    draw = random.Random(f"freight {seed} {held}")
    for sentences in rounds(pairs or TRAINED_PAIRS, draw):
        a, b, c = _numbers(draw, sentences, held=held)
        text = f"{sentences.load} {sentences.event}"
        text = text.format(a=a, b=b, c=c, goods=draw.choice(GOODS))
        yield FreightProblem(sentences=sentences, a=a, b=b, c=c, text=text)


def _numbers(draw: random.Random, sentences: Sentences, *, held: bool) -> tuple[int, int, int]:
    """Such that the answer cannot be copied from the problem."""

    def fits(numbers: tuple[int, int, int]) -> bool:
        found = compute(sentences.first, sentences.second, *numbers)
        return held_out(*numbers) is held and found >= 10 and found not in numbers

    return drawn_until(lambda: (draw.choice(FIRST), draw.choice(SECOND), draw.choice(THIRD)), fits)


def _pairs(*, unseen: bool) -> tuple[Sentences, ...]:
    loads = [(sign, text) for sign, texts in LOADS.items() for text in texts]
    events = [(sign, text) for sign, texts in EVENTS.items() for text in texts]
    return tuple(
        Sentences(first=first, load=load, second=second, event=event)
        for (row, (first, load)), (column, (second, event)) in product(
            enumerate(loads), enumerate(events)
        )
        if ((row + column) % UNSEEN_SHARE == 0) == unseen
    )


TRAINED_PAIRS, UNSEEN_PAIRS = _pairs(unseen=False), _pairs(unseen=True)
"""Each sentence is in both; so are all operators one after the other but for a few."""


def _task(one: FreightProblem, id: str, name: str) -> Task:
    told = {"first": one.sentences.first, "second": one.sentences.second}
    return question_task(id, one.text, one.result, source=f"freight/{name}", **told)


training = tasks_from("training", lambda seed: problems(seed, held=False), _task)
"""Endless: the pairs of sentences and the numbers that the policy may learn from."""
heldout = tasks_from("heldout", lambda seed: problems(seed, held=True), _task)
"""Endless: the same pairs of sentences, numbers that training never shows."""
unseen_pairs = tasks_from(
    "unseen-pairs", lambda seed: problems(seed, held=True, pairs=UNSEEN_PAIRS), _task
)
"""Endless: each sentence is known; training shows neither the two together nor the numbers."""
