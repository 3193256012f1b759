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

from tasks.worlds.questions import OPERATIONS, asked, drawn_until, exact_answer, held_out
from toolwright.types import Task

WORDINGS: Mapping[str, tuple[str, ...]] = {
    "*": (
        "{a} baskets hold {b} {things} each. How many {things} is that?",
        "A baker fills {a} trays and puts {b} {things} on every tray. How many does she need?",
        "Each of {a} pupils brings {b} {things} to school. How many do they bring?",
        "A pack of {things} costs {b} cents. What do {a} packs cost?",
    ),
    "+": (
        "A drawer with {a} {things} gets {b} more. How many does it hold now?",
        "Mia counted {a} {things} and Leo counted {b} others. How many did they count?",
        "On the left lie {a} {things} and on the right {b}. How many lie on both sides?",
        "{b} {things} arrive where {a} were before. How many are here after that?",
    ),
    "-": (
        "From {a} {things} the wind blows {b} off. How many stay?",
        "A truck brought {a} {things} but {b} came damaged. How many came whole?",
        "Noor wants {a} {things} and owns {b}. How many must she still buy?",
        "There were {a} {things} until {b} got lost. How many can still be found?",
    ),
    "//": (
        "{b} children divide {a} {things} evenly. What is the share of one child?",
        "With {b} {things} to a box, how many boxes do {a} {things} fill?",
        "Kofi stacks {a} {things} into piles of {b}. How many piles are complete?",
        "A chain takes {b} {things}. How many chains can be made of {a} {things}?",
    ),
}

UNSEEN_WORDINGS: Mapping[str, tuple[str, ...]] = {
    "*": (
        "A hall has {a} rows of {b} {things}. How many {things} stand in the hall?",
        "Ada sells {b} {things} a day. How many does she sell in {a} days?",
    ),
    "+": (
        "Yesterday {a} {things} were sold and today {b}. How many were sold in two days?",
        "A blue jar has {a} {things} and a red jar {b}. How many have both jars?",
    ),
    "-": (
        "Of {a} {things} in the shed Ben uses {b}. How many does he not use?",
        "{a} {things} stood here and {b} fell over. How many still stand?",
    ),
    "//": (
        "{a} {things} go into bags of {b}. How many bags are full?",
        "A team of {b} shares {a} {things} fairly. How many does each player get?",
    ),
}

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


def training(seed: int) -> Iterator[Task]:
    """Endless: the wordings and operands that the policy may learn from."""
    return _tasks("training", questions(seed, held=False))


def heldout(seed: int) -> Iterator[Task]:
    """Endless: the same wordings, operands that training never shows."""
    return _tasks("heldout", questions(seed, held=True))


def unseen_wordings(seed: int) -> Iterator[Task]:
    """Endless: wordings and operands that training never shows."""
    return _tasks("unseen-wordings", questions(seed, held=True, wordings=UNSEEN_WORDINGS))


def questions(
    seed: int, *, held: bool, wordings: Mapping[str, tuple[str, ...]] = WORDINGS
) -> Iterator[WordProblem]:
    """Endless rounds; a round asks every wording once, in random order. held: of held-out pairs of
    operands."""
    draw = random.Random(f"calculator {seed}")
    while True:
        places = [
            (sign, number) for sign, texts in wordings.items() for number in range(len(texts))
        ]
        draw.shuffle(places)
        for operation, wording in places:
            a, b = drawn_until(
                lambda: (draw.choice(FIRST_OPERAND), draw.choice(SECOND_OPERAND)),
                lambda pair: held_out(*pair) is held,
            )
            text = wordings[operation][wording].format(a=a, b=b, things=draw.choice(THINGS))
            yield WordProblem(operation=operation, wording=wording, a=a, b=b, text=text)


def _tasks(name: str, stream: Iterator[WordProblem]) -> Iterator[Task]:
    for number, one in enumerate(stream):
        told = {"operation": one.operation, "wording": one.wording, "a": one.a, "b": one.b}
        yield asked(f"{name}-{number}", one.text, one.result, source=f"calculator/{name}", **told)
