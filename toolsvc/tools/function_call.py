"""A call as R2E-Gym's agents write it; pure.

<function=name>
<parameter=key>value</parameter>
</function>
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolsvc.plugin.actions import InvalidAction
from toolwright.reading.json_text.json_bounds import OutOfBounds, read_json

OPENING, CLOSING = "<function=", "</function>"

_START, _END = "<parameter=", "</parameter>"
_LONGEST_NAME = 64
_NUMBERS = ("insert_line", "view_range")


def parse_function(body: str) -> tuple[str, dict[str, Any]]:
    """Name and parameters of the call between OPENING and CLOSING. Raises InvalidAction if the name
    is missing, or a number cannot be read."""
    name, mark, rest = body.partition(">")
    if not mark:
        raise InvalidAction(f"{OPENING} without >")
    given: dict[str, Any] = {}
    for parameter, value in _parameters(rest):
        # One line break on each side is the writing's, the others are the value's.
        text = value.removeprefix("\n").removesuffix("\n")
        given[parameter] = _number(parameter, text) if parameter in _NUMBERS else text
    return name.strip(), given


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    """Name and value of each, in order. A value ends at the first end after its start, and may hold
    other starts. Each character is looked at a few times, whatever the text."""
    at = 0
    while (start := text.find(_START, at)) >= 0:
        at = start + len(_START)
        head = text.find(">", at, at + _LONGEST_NAME + 1)
        if head < 0 or not _is_name(text[at:head]):
            continue
        end = text.find(_END, head)
        if end < 0:
            return  # nor does any later one
        yield text[at:head], text[head + 1 : end]
        at = end + len(_END)


def _is_name(text: str) -> bool:
    return text.replace("_", "a").isalnum()


def _number(parameter: str, text: str) -> Any:
    try:
        return read_json(text)
    except OutOfBounds:
        raise InvalidAction(f"{parameter} is no number: {text[:200]!r}") from None
