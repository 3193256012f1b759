"""Arithmetic told in English: questions of one line of Python each, and their reward.

A question has a number of four digits and one of three, and asks for one of four operations. It
never names the operation: that stands in the English around the numbers.

Owns the wordings, the split of the numbers and the reward. Invariants
- A question depends on nothing but the seed and its position.
- Four questions in a row, from the start, ask for the four operations, in random order: a batch
  of whole fours does not pull the policy towards one of them. Of an operation every wording is
  asked once before one is asked again.
- No wording of `UNSEEN` and no pair of numbers of `heldout` and `unseen_wordings` ever stands in
  `training`.
- The right result is never negative, so that it is digits only.

It knows nothing of tokens, tools or how the policy is trained.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.worlds.questions import (
    OPERATIONS,
    drawn_until,
    exact_answer,
    held_out,
    question_task,
    tasks_from,
    wordings,
)
from toolwright.types import Task


@dataclass(frozen=True, slots=True)
class Wording:
    """One way to ask: `text` with {a} and {b}, and the operator that it means."""

    sign: str
    text: str


def _wordings(name: str) -> tuple[Wording, ...]:
    by_sign = wordings(Path(__file__).with_name("wordings.txt"), name)
    return tuple(Wording(sign, text) for sign, texts in by_sign.items() for text in texts)


SEEN, UNSEEN = _wordings("seen"), _wordings("unseen")
FIRST_NUMBER = range(1000, 10_000)
SECOND_NUMBER = range(100, 1000)

score = exact_answer
"""The reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A wording with its numbers."""

    wording: Wording
    a: int
    b: int

    @property
    def text(self) -> str:
        return self.wording.text.format(a=self.a, b=self.b)

    @property
    def result(self) -> int:
        return OPERATIONS[self.wording.sign](self.a, self.b)


def questions(seed: int, known: Sequence[Wording], *, held: bool) -> Iterator[Sum]:
    """Endless fours, one question of each operation. held: of held-out pairs of numbers."""
    draw = random.Random(f"arithmetic {seed}")
    of = {sign: [one for one in known if one.sign == sign] for sign in OPERATIONS}
    while True:
        for four in zip(*(draw.sample(ways, len(ways)) for ways in of.values()), strict=True):
            for wording in draw.sample(four, len(four)):
                a, b = drawn_until(
                    lambda: (draw.choice(FIRST_NUMBER), draw.choice(SECOND_NUMBER)),
                    lambda pair: held_out(*pair) is held,
                )
                yield Sum(wording=wording, a=a, b=b)


def _task(one: Sum, id: str, name: str) -> Task:
    told = {"sign": one.wording.sign, "a": one.a, "b": one.b}
    return question_task(id, one.text, one.result, source=f"arithmetic/{name}", **told)


training = tasks_from("training", lambda seed: questions(seed, SEEN, held=False), _task)
"""Endless: the wordings and numbers that the policy may learn from."""
heldout = tasks_from("heldout", lambda seed: questions(seed, SEEN, held=True), _task)
"""Endless: the same wordings, numbers that training never shows."""
unseen_wordings = tasks_from(
    "unseen-wordings", lambda seed: questions(seed, UNSEEN, held=True), _task
)
"""Endless: wordings and numbers that training never shows."""
