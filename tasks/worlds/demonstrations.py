"""Demonstrations of a recipe's warm-up as a file: a conversation a line, as `engine render` reads.

It knows nothing of what is demonstrated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

Messages = list[dict[str, str]]
"""{"role", "content"} each, the question first."""


def write_conversations(path: Path, stream: Iterable[Messages], count: int) -> None:
    """Writes the first `count` of the stream; folders that are missing are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for messages in islice(stream, count):
            file.write(json.dumps({"messages": messages}) + "\n")


def demonstrations_command(
    conversations: Callable[[int], Iterator[Messages]],
    what: str,
    count: int,
    arguments: Sequence[str] | None = None,
) -> None:
    """The command line of a recipe's file that makes demonstrations: `--output FILE --seed N
    --count N`. conversations: endless, by the seed. what: whose they are. count: by default."""
    parser = argparse.ArgumentParser(description=f"Write {what} demonstrations.")
    parser.add_argument("--output", type=Path, required=True, help="JSONL file to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=count, help="conversations")
    given = parser.parse_args(arguments)
    write_conversations(given.output, conversations(given.seed), given.count)
    print(f"{given.count} conversations: {given.output}")
