"""A call as R2E-Gym's agents write it; pure.

<function=name>
<parameter=key>value</parameter>
</function>
"""

from __future__ import annotations

import json
import re
from typing import Any

from toolsvc.plugin.actions import InvalidAction

OPENING, CLOSING = "<function=", "</function>"

_PARAMETER = re.compile(r"<parameter=(\w+)>(.*?)</parameter>", re.DOTALL)
_NUMBERS = ("insert_line", "view_range")


def parse_function(body: str) -> tuple[str, dict[str, Any]]:
    """Name and parameters of what stands between OPENING and CLOSING. InvalidAction if there is
    no name, or a number is none."""
    name, mark, rest = body.partition(">")
    if not mark:
        raise InvalidAction(f"{OPENING} without >")
    given: dict[str, Any] = {}
    for parameter, value in _PARAMETER.findall(rest):
        # One line break on each side is the writing's, the others are the value's.
        text = value.removeprefix("\n").removesuffix("\n")
        given[parameter] = _number(parameter, text) if parameter in _NUMBERS else text
    return name.strip(), given


def _number(parameter: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidAction(f"{parameter} is no number: {text!r}") from None
