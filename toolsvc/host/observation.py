"""Brings what a tool answered into bounds, whatever the tool is; pure.

Invariants
- The texts of an observation have at most `limit` characters together, the marker included
  (`toolwright.text.truncation`). Media count apart and stay where they are.
- No text has a control character (but newline and tab), a terminal's escape sequence or a lone
  surrogate: a tokenizer or protobuf would choke on them.
- What was cut is said to be: by a marker in the text, and by `truncated`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from toolsvc.types import Part, Result, Text
from toolwright.text.truncation import Cut, Keep, cut

DEFAULT_LIMIT = 100_000
MARKER = "\n[... cut ...]\n"

_UNWELCOME = re.compile(
    "\x1b\\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]|(?P<lone>[\ud800-\udfff])"
)


def clean(text: str) -> str:
    """The text without what no observation should hold; a lone surrogate becomes "?"."""
    if text.isascii() and text.isprintable():  # most are, and this is several times faster
        return text
    return _UNWELCOME.sub(lambda found: "?" if found["lone"] else "", text)


def tidy(result: Result, limit: int, keep: Keep) -> Result:
    """The result with clean texts of at most `limit` characters; so are its reason and the message
    of its error."""
    if result.error is None and not result.invalid_reason and len(result.observation) == 1:
        (part,) = result.observation
        if isinstance(part, Text) and len(part.text) <= limit and clean(part.text) is part.text:
            return result  # without the cost of making it again
    parts = tuple(result.observation)
    length = sum(len(part.text) for part in parts if isinstance(part, Text))
    found = cut(length, limit=limit, marker=len(MARKER), keep=keep)
    if found is not None:
        parts = _apply(found, parts, length)
    error = result.error
    if error is not None:
        error = replace(error, message=_short(error.message, limit, keep))
    return replace(
        result,
        observation=tuple(
            Text(text=clean(part.text)) if isinstance(part, Text) else part for part in parts
        ),
        invalid_reason=_short(result.invalid_reason, limit, keep),
        error=error,
        truncated=result.truncated or found is not None,
    )


def _apply(found: Cut, parts: tuple[Part, ...], length: int) -> tuple[Part, ...]:
    """The parts with what lies between front and back taken out, across the texts."""
    back_from = length - found.back
    marker = MARKER if found.marked else ""
    out: list[Part] = []
    at = 0
    for part in parts:
        if not isinstance(part, Text):
            out.append(part)
            continue
        text, start = part.text, at
        at += len(text)
        front = text[: max(0, found.front - start)]
        back = text[max(0, back_from - start) :]
        if at > found.front:
            # The first text that goes on beyond the front, and no other, gets the marker.
            front, marker = front + marker, ""
        if front or back:
            out.append(Text(text=front + back))
    return tuple(out)


def _short(text: str, limit: int, keep: Keep) -> str:
    found = cut(len(text), limit=limit, marker=len(MARKER), keep=keep)
    if found is not None:
        marker = MARKER if found.marked else ""
        text = text[: found.front] + marker + text[len(text) - found.back :]
    return clean(text)
