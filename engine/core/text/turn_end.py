"""Ends of an assistant's turn, in the text of servers and policies. Pure.

A template writes a token after an assistant's message (Qwen `<|im_end|>`, Llama 3 `<|eot_id|>`);
`toolwright.chat.turn_end` finds it. eos_token may be another one: a base model's is the end of a
document. A policy may end its turn by either, so protocols always see the template's.
"""

from __future__ import annotations

import re

from engine.types import Codec

_FOREIGN = re.compile(r"(?:<[|\uff5c][^<>|\uff5c\s]{1,40}[|\uff5c]>|</s>|<eos>|<end_of_turn>)\s*\Z")
"""Markers of published templates, at the end of a text."""
_LONGEST_MARKER = 64


def canonical_end(text: str, stop: str | None, codec: Codec) -> tuple[str, str | None]:
    """An action's text and stop as a protocol sees them: any end of a turn is `end_of_turn`."""
    if stop not in codec.turn_ends[1:]:
        return text, stop
    return text.removesuffix(str(stop)) + codec.end_of_turn, codec.end_of_turn


def foreign_end(text: str) -> str:
    """End-of-turn markers of published templates at the end of a text; "" without one."""
    start, tail = len(text), text[-_LONGEST_MARKER:]
    while found := _FOREIGN.search(tail):
        start -= len(tail) - found.start()
        tail = text[max(0, start - _LONGEST_MARKER) : start]
    return text[start:]
