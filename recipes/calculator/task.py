"""Word problems that one line of Python answers: the questions and their reward.

A question has two operands and asks for one of four operations in one of sixteen wordings. It
never writes the operator down: which one a wording asks for is what the policy has to find out.

Owns the wordings, the split of the operands and the reward. Invariants
- A question depends on nothing but the seed and its position.
- Sixteen questions in a row, from the start, are one of each wording, in random order.
- No pair of operands of `heldout` and `unseen_wordings` ever stands in `training`.
- The right result is never negative, so that it is digits only.

It knows nothing of tokens, tools or how the policy is trained.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
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

WORDINGS = wordings(Path(__file__).with_name("wordings.txt"), "seen")
UNSEEN_WORDINGS = wordings(Path(__file__).with_name("wordings.txt"), "unseen")
THINGS = ("marbles", "tickets", "lemons", "bricks", "candles", "buttons", "pencils", "stickers")

FIRST_OPERAND = range(100, 1000)
SECOND_OPERAND = range(11, 100)

score = exact_answer
"""The reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordProblem:
    """One word problem; `wording` counts within its operation."""

    operation: str
    wording: int
    a: int
    b: int
    text: str

    @property
    def result(self) -> int:
        return OPERATIONS[self.operation](self.a, self.b)


def questions(
    seed: int, *, held: bool, known: Mapping[str, tuple[str, ...]] = WORDINGS
) -> Iterator[WordProblem]:
    """Endless rounds; a round asks every wording once, in random order. held: of held-out pairs of
    operands."""
    draw = random.Random(f"calculator {seed}")
    while True:
        places = [(sign, number) for sign, texts in known.items() for number in range(len(texts))]
        draw.shuffle(places)
        for operation, wording in places:
            a, b = drawn_until(
                lambda: (draw.choice(FIRST_OPERAND), draw.choice(SECOND_OPERAND)),
                lambda pair: held_out(*pair) is held,
            )
            text = known[operation][wording].format(a=a, b=b, things=draw.choice(THINGS))
            yield WordProblem(operation=operation, wording=wording, a=a, b=b, text=text)


def _task(one: WordProblem, id: str, name: str) -> Task:
    told = {"operation": one.operation, "wording": one.wording, "a": one.a, "b": one.b}
    return question_task(id, one.text, one.result, source=f"calculator/{name}", **told)


training = tasks_from("training", lambda seed: questions(seed, held=False), _task)
"""Endless: the wordings and operands that the policy may learn from."""
heldout = tasks_from("heldout", lambda seed: questions(seed, held=True), _task)
"""Endless: the same wordings, operands that training never shows."""
unseen_wordings = tasks_from(
    "unseen-wordings", lambda seed: questions(seed, held=True, known=UNSEEN_WORDINGS), _task
)
"""Endless: wordings and operands that training never shows."""
