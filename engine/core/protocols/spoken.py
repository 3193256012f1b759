"""The text of an action without the thoughts of the chat template, as protocols read it; pure.

A call or an answer inside a thought does not count. Streams keep the same rule:
`engine.core.sampler.stops` ignores stops inside a thought.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.core.protocols.base import Protocol
from engine.core.text.thoughts import begins_inside
from engine.types import Codec, ToolSpec
from toolwright.reading import action_ends
from toolwright.reading.action_ends import Grammar


def spoken(
    text: str, before: Sequence[int], tools: Sequence[ToolSpec], protocol: Protocol, codec: Codec
) -> str:
    """The text of an action without its thoughts. before: the last ids before the action."""
    if codec.thought is None:
        return text
    thinking = begins_inside(codec, before)
    if not thinking and codec.thought.open not in text:
        return text
    grammar = Grammar(
        ends=(*protocol.stops(tools, codec), *protocol.marks(tools, codec)),
        json=protocol.json_calls(tools, codec),
        thought=codec.thought,
        turn_end=codec.end_of_turn,
    )
    return action_ends.spoken(text, grammar, thinking=thinking)
