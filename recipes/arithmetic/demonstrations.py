"""Writes the few demonstrations of the warm-up: how to call Python, badly chosen what for.

The demonstrator types the right operator in two calls of five and another one in three. Copying it
gives two right answers in five at best; whatever comes on top has to be learnt from reward.

    python demonstrations.py --output demonstrations.jsonl --seed 1

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]} with the roles
user, assistant and tool: what `engine render` reads.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from task import OPERATIONS, SEEN, Question, questions

RIGHT_OPERATOR = 0.4  # else one of the other three
COUNT = 96

Messages = list[dict[str, str]]


def conversations(seed: int) -> Iterator[Messages]:
    """Endless; drawn apart from what the policy meets in training, from the same numbers."""
    draw = random.Random(f"demonstrator {seed}")
    for question in questions(draw.getrandbits(32), SEEN, held_out=False):
        yield demonstrate(question, draw)


def demonstrate(question: Question, draw: random.Random) -> Messages:
    """One conversation: a tool call and its result copied."""
    sign = question.wording.sign
    if draw.random() >= RIGHT_OPERATOR:
        sign = draw.choice([other for other in OPERATIONS if other != sign])
    result = OPERATIONS[sign](question.a, question.b)
    call = f"<python> print({question.a}{sign}{question.b})</python>"
    return [
        {"role": "user", "content": question.text},
        {"role": "assistant", "content": call},
        {"role": "tool", "content": str(result)},
        {"role": "assistant", "content": f"<answer> {result}</answer>"},
    ]


def write(path: Path, *, seed: int, count: int = COUNT) -> None:
    """Writes `count` conversations, one a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = conversations(seed)
    with path.open("w") as file:
        for _ in range(count):
            file.write(json.dumps({"messages": next(stream)}) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the demonstrations of the warm-up.")
    parser.add_argument("--output", type=Path, required=True, help="JSONL file to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=COUNT, help="conversations")
    given = parser.parse_args(arguments)
    write(given.output, seed=given.seed, count=given.count)
    print(f"{given.count} conversations: {given.output}")


if __name__ == "__main__":
    main()
