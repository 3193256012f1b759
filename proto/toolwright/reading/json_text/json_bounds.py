"""Bounds on the length and the depth of a call; pure.

The bounds hold for the text of an action and for arguments that came as data. They bound the work
of every later parser. A value within them exists in Python, JSON and protobuf.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

from toolwright.json_data import MOST_DEPTH

MOST_CHARACTERS = 2 << 20
"""Most characters of an action: the conformance suite sends 1 MiB, a file may have 10^6."""
MOST_VALUES = 50_000
"""Most values of the arguments, over all levels."""


class OutOfBounds(ValueError):
    """The text is not JSON, or exceeds a bound. The message names which."""


def read_json(text: str) -> Any:
    """The value of a JSON text. Raises OutOfBounds if it is not JSON, or if `check_values` refuses
    the value."""
    try:
        found = _DECODER.decode(text)
    except RecursionError:
        raise OutOfBounds(f"nested more than {MOST_DEPTH} levels deep") from None
    except ValueError as error:
        raise OutOfBounds(str(error)) from error
    check_values(found)
    return found


def check_values(value: Any) -> None:
    """Raises OutOfBounds for more than MOST_VALUES values or MOST_DEPTH levels. Also for a number
    that is not a double, and for half a surrogate pair, which no encoding can hold. Objects that
    are not JSON-like are not checked: a tool put them there."""
    waiting = [(value, 0)]
    seen = 1
    while waiting:
        one, depth = waiting.pop()
        kind = type(one)
        if kind is str:
            if not one.isascii():
                _check_text(one)
        elif kind is bool or one is None:
            pass
        elif isinstance(one, str):
            _check_text(one)
        elif kind is int or kind is float or isinstance(one, int | float):
            _check_number(one)
        elif kind is dict or kind is list or isinstance(one, Mapping | list | tuple):
            seen += len(one)
            if depth >= MOST_DEPTH:
                raise OutOfBounds(f"nested more than {MOST_DEPTH} levels deep")
            if seen > MOST_VALUES:
                raise OutOfBounds(f"more than {MOST_VALUES} values")
            if kind is dict or isinstance(one, Mapping):
                for name in one:
                    _check_text(name)
                one = one.values()
            waiting += [(inner, depth + 1) for inner in one]


def check_action(action: str) -> None:
    """Raises OutOfBounds for an action that is too long."""
    if len(action) > MOST_CHARACTERS:
        raise OutOfBounds(f"the action has more than {MOST_CHARACTERS} characters")


def fits_double(number: float) -> bool:
    """Whether a finite double can hold a number. `math.isfinite` raises OverflowError for a long
    integer."""
    return abs(number) <= sys.float_info.max


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OutOfBounds("a text holds half a surrogate pair") from None


def _check_number(number: float) -> None:
    if isinstance(number, float) and not math.isfinite(number):
        raise OutOfBounds(f"{number} is no JSON")
    if not fits_double(number):
        raise OutOfBounds("a number is larger than 1.8e308")


def _no_constant(name: str) -> None:
    raise OutOfBounds(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
"""One for all texts: `json.loads` would make one for each."""
