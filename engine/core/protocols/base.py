"""The interface of a protocol: pure functions, no state between calls.

A protocol reads the text of actions and writes the ids of prompts and observations. It never
changes tokens of the policy: they stay as the sampler returned them.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from typing import Any

from engine.types import Codec, Decision, Rewrite, ToolSpec, View
from toolwright.reading.actions import Tags
from toolwright.types import Author, Task


class Protocol(typing.Protocol):
    """One protocol, constructed once for a recipe with `protocol_options` as keywords."""

    def prompt(self, task: Task, tools: Sequence[ToolSpec], codec: Codec) -> list[int]:
        """Ids of the first request."""
        ...

    def stops(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[str, ...]:
        """Texts that end an action, the end of the assistant's turn included."""
        ...

    def marks(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[str, ...]:
        """Texts that complete one of several calls while the action continues.

        Empty if an action is one call. The sampler does not get them: a mark is not a stop.
        """
        ...

    def json_calls(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[Tags, ...]:
        """Tags of calls with a JSON body: stops and marks inside its strings are text."""
        ...

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        """The decision on an action; never raises. text: the action with its stop, without thoughts
        of the chat template.

        At a mark the calls so far are returned: the calls at the stop begin with them.
        """
        ...

    def frame(
        self, stop: str | None, codec: Codec, author: Author = Author.TOOL
    ) -> tuple[list[int], list[int]]:
        """Ids before and after an observation. stop: how the action ended. author: first author of
        the observation."""
        ...

    def observation(
        self, texts: Sequence[str], codec: Codec, author: Author = Author.TOOL
    ) -> list[int]:
        """Ids of one turn's observation without its frame. texts: one for each call, in call order,
        all by `author`."""
        ...

    def demonstration(
        self, messages: Sequence[Mapping[str, Any]], codec: Codec, tools: Sequence[ToolSpec] = ()
    ) -> list[tuple[str, list[int]]]:
        """A recorded conversation as ("prompt" | "model" | "tool", ids) runs of a rollout.

        tools: those that the prompt shows. Raises ValueError with the message that does not fit.
        """
        ...


@typing.runtime_checkable
class Rewriting(typing.Protocol):
    """A protocol that may replace the context between two turns, for example where it is full."""

    def rewrite(self, view: View, codec: Codec) -> Rewrite | None:
        """The new context; None to go on. Called before each action but the first, with all
        observations in the view; never raises. A turn has one rewrite at most."""
        ...
