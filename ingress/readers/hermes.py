"""<tool_call>{"name": ..., "arguments": {...}}</tool_call>, as Hermes and Qwen models write. Pure.

A closing tag inside a string of the JSON is text. Blocks are read by `toolwright.reading.actions`,
as the engine's own protocols read them.
"""

from __future__ import annotations

from ingress.readers.blocks import BlockReader
from ingress.readers.types import Tools, read_call, words
from ingress.types import IllFormed, Piece
from toolwright.reading.action_ends import Tags
from toolwright.reading.actions import calls_in
from toolwright.reading.json_text.json_prefix import JsonPrefix

TAGS = Tags("<tool_call>", "</tool_call>")


class HermesReader(BlockReader):
    """Reader of one completion."""

    def __init__(self, tools: Tools = ()) -> None:
        super().__init__(TAGS)
        self._json = JsonPrefix()

    def _begin(self) -> None:
        self._json = JsonPrefix()

    def _grow(self, text: str) -> None:
        super()._grow(text)
        if not self._json.broken and not self._json.complete:
            self._json.feed(text)

    def _counts(self) -> bool:
        # The tag itself breaks the JSON, or is a part of a string that goes on.
        return not (self._json.inside and not self._json.broken)

    def _whole(self, block: str) -> list[Piece]:
        found: list[Piece] = []
        at = 0
        for one in calls_in(block, TAGS):
            before = block[at : one.start] if one.start >= 0 else ""
            found += words(before.strip()) if before.strip() else []
            at = one.end
            if one.call.fault or one.call.arguments is None:
                found.append(IllFormed(text=one.piece[len(before) :], reason=one.call.fault))
            else:
                found.append(read_call(one.call.name, one.call.arguments))
        if rest := block[at:]:
            found.append(IllFormed(text=rest, reason="the completion ends inside a tool call"))
        return found
