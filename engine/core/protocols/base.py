"""What the turn loop asks of a protocol: pure functions, no state between calls.

A protocol never sees tokens of the policy again: it reads text of actions and writes the ids of
prompts and observations. Whatever the policy wrote stays as the sampler returned it.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from typing import Any

from engine.types import Codec, Decision, ToolSpec, View
from toolwright.reading.actions import Tags
from toolwright.types import Author, Task


class Protocol(typing.Protocol):
    """One way of speaking. Constructed once a recipe with `protocol_options` as keywords."""

    def prompt(self, task: Task, tools: Sequence[ToolSpec], codec: Codec) -> list[int]:
        """Ids of the first request."""
        ...

    def stops(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[str, ...]:
        """Texts that end an action, the end of the assistant's turn included."""
        ...

    def marks(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[str, ...]:
        """Texts at which one of several calls is complete while the action goes on; none where an
        action is one call. A mark is no stop: the sampler never hears of it."""
        ...

    def json_calls(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[Tags, ...]:
        """Tags of the calls whose body is a JSON object: inside a string of theirs, stops and marks
        are text."""
        ...

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        """What an action asks for. `text` includes the stop, and not the thoughts of a chat
        template that has them; never raises.

        At a mark it is asked for the calls so far: those at the stop begin with them.
        """
        ...

    def frame(
        self, stop: str | None, codec: Codec, author: Author = Author.TOOL
    ) -> tuple[list[int], list[int]]:
        """Ids before and after an observation, given how the action ended and who
        speaks first in it."""
        ...

    def observation(
        self, texts: Sequence[str], codec: Codec, author: Author = Author.TOOL
    ) -> list[int]:
        """Ids of the observation of one turn, one text a call, in call order; no frame. author:
        who speaks; all texts have the same."""
        ...

    def demonstration(
        self, messages: Sequence[Mapping[str, Any]], codec: Codec, tools: Sequence[ToolSpec] = ()
    ) -> list[tuple[str, list[int]]]:
        """A recorded conversation as ("prompt" | "model" | "tool", ids) runs, as rollouts
        with these tools would have them. ValueError names the message that does not fit."""
        ...
