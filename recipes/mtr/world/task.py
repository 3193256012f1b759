"""The world of the demonstration: questions about a small encyclopedia that nobody can look up.

Easy questions take one fact, hard ones two: what the first call finds names what the second has to
be about. There are no tools: a model makes them from each question, and plays them (player.py).

Owns which encyclopedia it is, and the order of the questions. It knows nothing of tokens, tools or
how the policy is trained. Tools are told a task's metadata: the question stands there, for
ToolMaker, and no answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tasks.worlds.encyclopedia import Question, Shape, Split, questions
from tasks.worlds.rounds import in_turn, rounds
from toolwright.types import Task

ENCYCLOPEDIA = 1
"""The seed of the facts; other seeds are other encyclopedias, in which demonstrations are set."""
SHAPE = Shape(
    people=160,
    towns=80,
    companies=80,
    rivers=48,
    relations=("birthplace", "employer", "mayor", "river", "founder", "seat"),
    wordings=2,
    notes=True,
)
EASY, HARD = 1, 2
"""Hops."""


def training(seed: int) -> Iterator[Task]:
    """Endless: easy and hard ones in turn."""
    return _tasks("train", _in_turn("train", seed))


def easy(seed: int) -> Iterator[Task]:
    """Endless: about entities that training never asks about, nor answers with."""
    return _tasks("heldout-easy", _endless("heldout", EASY, seed))


def hard(seed: int) -> Iterator[Task]:
    """Endless: the same of two hops."""
    return _tasks("heldout-hard", _endless("heldout", HARD, seed))


def heldout(seed: int) -> Iterator[Task]:
    """Endless: both in turn."""
    return _tasks("heldout", _in_turn("heldout", seed))


def _in_turn(split: Split, seed: int) -> Iterator[Question]:
    return in_turn(_endless(split, EASY, seed), _endless(split, HARD, seed))


def _endless(split: Split, hops: int, seed: int) -> Iterator[Question]:
    every = questions(split, ENCYCLOPEDIA, SHAPE, (hops,))
    return rounds(every, random.Random(f"{split} {hops} {seed}"))


def _tasks(name: str, stream: Iterator[Question]) -> Iterator[Task]:
    for number, question in enumerate(stream):
        yield Task(
            id=f"{name}-{number}",
            data_source="easy" if question.hops == EASY else "hard",
            messages=({"role": "user", "content": question.text},),
            answers=question.answers,
            metadata={"question": question.text, "hops": question.hops},
        )
