"""The world of the demonstration: a small encyclopedia, with easy and hard questions about it.

Easy questions take one search, hard ones two: what the first finds names what the second has to be
about. Names have two pieces, so that the search finds namesakes too, and a held-out name is new as
a whole and not in its pieces.

    python world/task.py --output corpus.jsonl        # the passages that the search tool searches

Owns which encyclopedia it is, and the order of the questions. It knows nothing of tokens, tools or
how the policy is trained.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tasks.worlds.encyclopedia import Question, Shape, Split, passages, questions
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
    both = in_turn(_endless("train", EASY, seed), _endless("train", HARD, seed))
    return _tasks("train", both)


def easy(seed: int) -> Iterator[Task]:
    """Endless: about entities that training never asks about, nor answers with."""
    return _tasks("heldout-easy", _endless("heldout", EASY, seed))


def hard(seed: int) -> Iterator[Task]:
    """Endless: the same of two hops."""
    return _tasks("heldout-hard", _endless("heldout", HARD, seed))


def write_corpus(path: Path) -> int:
    """Writes the passages as JSON lines; returns how many there are."""
    lines = [json.dumps(one) + "\n" for one in passages(ENCYCLOPEDIA, SHAPE)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)


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
            metadata={"hops": question.hops, "relation": question.path[-1]},
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the passages of the encyclopedia.")
    parser.add_argument("--output", type=Path, required=True, help="JSONL file to write")
    given = parser.parse_args(arguments)
    print(f"{write_corpus(given.output)} passages: {given.output}")


if __name__ == "__main__":
    main()
