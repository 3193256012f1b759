"""Demonstrations of a recipe's warm-up: their messages, and the file of them for `engine render`.

One line of the file is one conversation, {"messages": [{"role", "content"}, ...]}. This module does
not know what is demonstrated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

from toolwright.script import Output, run

Messages = list[dict[str, str]]
"""{"role", "content"} each, the question first."""
Conversations = Callable[[int], Iterator[Messages]]
"""An endless stream of conversations, by the seed."""


def asks(text: str) -> dict[str, str]:
    """The user's message."""
    return {"role": "user", "content": text}


def says(text: str) -> dict[str, str]:
    """A message of the demonstrator."""
    return {"role": "assistant", "content": text}


def returns(text: object) -> dict[str, str]:
    """A message of a tool."""
    return {"role": "tool", "content": str(text)}


class Transcript:
    """A conversation while it is demonstrated."""

    def __init__(self, question: str) -> None:
        self.messages: Messages = [asks(question)]

    def says(self, text: str) -> None:
        self.messages.append(says(text))

    def returns(self, text: object) -> None:
        self.messages.append(returns(text))


def write_conversations(path: Path, stream: Iterable[Messages], count: int) -> None:
    """Writes the first `count` of the stream. Makes missing folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for messages in islice(stream, count):
            file.write(json.dumps({"messages": messages}) + "\n")


def demonstrations_program(conversations: Conversations, default: int) -> Callable[..., None]:
    """The `main` of a file that writes demonstrations: `--output FILE --seed N --count N`.

    default: number of conversations without `--count`.
    """

    def main(
        *, output: Output, seed: int = 0, count: Annotated[int, "conversations"] = default
    ) -> None:
        """Write the demonstrations of a warm-up."""
        write_conversations(output, conversations(seed), count)
        print(f"{count} conversations: {output}")

    return main


def demonstrations_command(
    conversations: Conversations, what: str, count: int, arguments: Sequence[str] | None = None
) -> None:
    """Runs the program of `demonstrations_program`; recipe folders of earlier versions call it."""
    run(demonstrations_program(conversations, count), arguments)
