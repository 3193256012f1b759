"""The simulated policy's protocol: tags in plain text, with several calls in one action.

Invariant: the calls at a mark are the first calls at the action's end, however it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.core.protocols.actions import read_call
from engine.core.protocols.tagged import Tagged
from engine.types import Call, Calls, Codec, Decision, ToolSpec, View
from toolwright.types import Author

SEPARATOR = ";"
"""Ends a call that is not the last one of its action."""


class Separated(Tagged):
    """`abc;de;f` and a stop are three calls. Each result has the observation's form."""

    def __init__(self, *, marked: bool = False) -> None:
        """marked: a call is sent at its separator, while the action goes on."""
        super().__init__(observation="[{text}]")
        self._marked = marked

    def marks(self, tools: Sequence[ToolSpec], codec: Codec) -> tuple[str, ...]:
        return (SEPARATOR,) if self._marked else ()

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        if stop == codec.end_of_turn and not (self._marked and SEPARATOR in text):
            return super().decide(text, stop, view, codec)
        return Calls(calls=tuple(_calls(text, stop, view.tools)))

    def observation(
        self, texts: Sequence[str], codec: Codec, author: Author = Author.TOOL
    ) -> list[int]:
        return codec.encode_plain("][".join(texts))


def _calls(text: str, stop: str, tools: Sequence[ToolSpec]) -> Iterator[Call]:
    """Calls of an action. Text after the last separator is a call only before a tool's stop."""
    stops = [end for tool in tools for end in tool.stop_strings]
    *parts, last = text.split(SEPARATOR)
    for part in parts:
        yield read_call(part + SEPARATOR, stops[0], tools)
    if stop in stops:
        yield read_call(last, stop, tools)
