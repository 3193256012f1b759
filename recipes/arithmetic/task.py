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

from tasks.worlds.questions import OPERATIONS, asked, drawn_until, exact_answer, held_out
from toolwright.types import Task


@dataclass(frozen=True, slots=True)
class Wording:
    """One way to ask: `text` with {a} and {b}, and the operator that it means."""

    sign: str
    text: str


SEEN: Sequence[Wording] = (
    Wording("*", "A train carries {a} people a day. How many people does it carry in {b} days?"),
    Wording("*", "One ticket costs {b} dollars. How much do {a} tickets cost in all?"),
    Wording("*", "There are {b} boxes with {a} screws in each box. How many screws are there?"),
    Wording("*", "A printer makes {b} pages an hour. How many pages does it make in {a} hours?"),
    Wording("*", "Each of {a} students reads {b} pages. How many pages do they read altogether?"),
    Wording("*", "What is the product of {a} and {b}?"),
    Wording("+", "A library has {a} books and buys {b} more. How many books does it have now?"),
    Wording("+", "Sara saved {a} dollars and Tom saved {b}. How much did they save together?"),
    Wording("+", "{a} people live in a town and {b} people move in. How many live there now?"),
    Wording("+", "A farmer picks {a} apples and then {b} pears. How many fruits does he pick?"),
    Wording("+", "We drove {a} miles in May and {b} in June. How many miles was that in all?"),
    Wording("+", "What is the sum of {a} and {b}?"),
    Wording("-", "A shop had {a} eggs and sold {b} of them. How many eggs are left?"),
    Wording("-", "Of {a} seats in a theater {b} are taken. How many seats are still free?"),
    Wording("-", "A tank holds {a} liters and loses {b} liters. How many liters remain?"),
    Wording("-", "Ben has {a} coins and gives {b} away. How many coins does he keep?"),
    Wording("-", "A bike costs {a} dollars and Eva has {b}. How much more money does she need?"),
    Wording("-", "What is the difference between {a} and {b}?"),
    Wording("//", "{a} cards are shared equally among {b} players. How many does each one get?"),
    Wording("//", "A bus holds {b} people. How many buses can {a} people fill?"),
    Wording("//", "{a} eggs are packed into crates of {b}. How many full crates are there?"),
    Wording("//", "A rope of {a} feet is cut into pieces of {b} feet. How many pieces are there?"),
    Wording("//", "{b} workers split {a} dollars evenly. How much is paid to each worker?"),
    Wording("//", "How many times does {b} go into {a}?"),
)  # fmt: skip

UNSEEN: Sequence[Wording] = (
    Wording("*", "A factory builds {a} cars every month. How many does it build in {b} months?"),
    Wording("*", "A field has {b} rows of {a} plants. How many plants grow in the field?"),
    Wording("*", "A hotel room is {b} dollars per night. What does a group pay for {a} nights?"),
    Wording("*", "Multiply {a} by {b}. What do you get?"),
    Wording("+", "A museum had {a} visitors on Monday and {b} on Tuesday. How many came in total?"),
    Wording("+", "Mia has {a} stamps. Her uncle sends her another {b}. How many has she got now?"),
    Wording("+", "A truck carries {a} bricks and {b} tiles. How many items are on the truck?"),
    Wording("+", "Add {b} to {a}. What do you get?"),
    Wording("-", "A baker made {a} rolls, and {b} were eaten. How many rolls has he left?"),
    Wording("-", "The trip is {a} miles long and {b} are done. How many miles are left to go?"),
    Wording("-", "A lake had {a} fish, but {b} of them died. How many fish are still alive?"),
    Wording("-", "Take {b} away from {a}. What do you get?"),
    Wording("//", "{a} marbles are divided equally into {b} bags. How many are in each bag?"),
    Wording("//", "A table seats {b} guests. How many tables do {a} guests fill?"),
    Wording("//", "{b} friends win {a} dollars and share them fairly. How much does each get?"),
    Wording("//", "Divide {a} by {b} and round down. What do you get?"),
)  # fmt: skip

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


def training(seed: int) -> Iterator[Task]:
    """Endless: the wordings and numbers that the policy may learn from."""
    return _tasks("training", questions(seed, SEEN, held=False))


def heldout(seed: int) -> Iterator[Task]:
    """Endless: the same wordings, numbers that training never shows."""
    return _tasks("heldout", questions(seed, SEEN, held=True))


def unseen_wordings(seed: int) -> Iterator[Task]:
    """Endless: wordings and numbers that training never shows."""
    return _tasks("unseen-wordings", questions(seed, UNSEEN, held=True))


def questions(seed: int, wordings: Sequence[Wording], *, held: bool) -> Iterator[Sum]:
    """Endless fours, one question of each operation. held: of held-out pairs of numbers."""
    draw = random.Random(f"arithmetic {seed}")
    of = {sign: [one for one in wordings if one.sign == sign] for sign in OPERATIONS}
    while True:
        for four in zip(*(draw.sample(ways, len(ways)) for ways in of.values()), strict=True):
            for wording in draw.sample(four, len(four)):
                a, b = drawn_until(
                    lambda: (draw.choice(FIRST_NUMBER), draw.choice(SECOND_NUMBER)),
                    lambda pair: held_out(*pair) is held,
                )
                yield Sum(wording=wording, a=a, b=b)


def _tasks(name: str, stream: Iterator[Sum]) -> Iterator[Task]:
    for number, one in enumerate(stream):
        told = {"sign": one.wording.sign, "a": one.a, "b": one.b}
        yield asked(f"{name}-{number}", one.text, one.result, source=f"arithmetic/{name}", **told)
