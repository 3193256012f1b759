"""Countries of the world, for a pretrained model: questions of one search and of two, and passages.

The facts are real (GeoNames). A model may know some of them; what it is rewarded for is to look
them up. One country in five is held out.

    python countries/questions.py --output corpus.jsonl        # what the search tool searches

It knows nothing of tokens, tools or how the policy is trained.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tasks.record import Record
from tasks.worlds import atlas
from tasks.worlds.rounds import in_turn, rounds
from toolwright.types import Task

SPLIT = 1
"""The seed that says which countries are held out."""
EASY, HARD = 1, 2
"""Hops."""


def training(seed: int) -> Iterator[Task]:
    """Endless: easy and hard ones in turn."""
    both = in_turn(_endless("train", EASY, seed), _endless("train", HARD, seed))
    return _tasks("train", both)


def easy(seed: int) -> Iterator[Task]:
    """Endless: about countries that training never asks about."""
    return _tasks("heldout-easy", _endless("heldout", EASY, seed))


def hard(seed: int) -> Iterator[Task]:
    """Endless: the same of two hops."""
    return _tasks("heldout-hard", _endless("heldout", HARD, seed))


def _endless(split: str, hops: int, seed: int) -> Iterator[Record]:
    every = (one for one in atlas.questions(split, SPLIT) if one.extra["hops"] == hops)
    return rounds(every, random.Random(f"{split} {hops} {seed}"))


def _tasks(name: str, stream: Iterator[Record]) -> Iterator[Task]:
    for number, record in enumerate(stream):
        source = "easy" if record.extra["hops"] == EASY else "hard"
        yield replace(record.as_task(), id=f"{name}-{number}", data_source=source)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the passages about countries.")
    parser.add_argument("--output", type=Path, required=True, help="JSONL file to write")
    path = parser.parse_args(arguments).output
    lines = [json.dumps(one) + "\n" for one in atlas.passages(SPLIT)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    print(f"{len(lines)} passages: {path}")


if __name__ == "__main__":
    main()
