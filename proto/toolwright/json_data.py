"""JSON-like data in protobuf, both ways, integers of any size among it.

google.protobuf.Struct has doubles alone. Data with an integer that a double cannot hold also travel
as JSON text, in the field `<field>_json` beside the Struct. In all other messages that field is
empty. A reader that does not know the field reads the nearest doubles from the Struct.

Protobuf reads messages up to a depth of 100, and each object of a Struct takes three levels. Data
nested more deeply than MOST_DEPTH could be written but not read again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from google.protobuf.struct_pb2 import ListValue, Struct, Value

MOST_DEPTH = 28
"""Objects and lists inside of each other. Leaves the messages around a Struct 16 levels."""
INEXACT = 2**53
"""From here on a double may stand for an integer beside it."""


LARGE_TEXT = 1 << 18
"""Characters: read in some 5 ms at once."""
LARGE_DATA = 10_000
"""Values: converted in some 10 ms."""
_AT_ONCE = json.JSONDecoder()
_IN_TURNS = json.JSONDecoder()
_IN_TURNS.scan_once = py_make_scanner(_IN_TURNS)  # type: ignore[attr-defined]


def struct(data: Mapping[str, Any]) -> Struct:
    """A Struct of JSON-like data. Raises TypeError or ValueError for other data, and for data that
    are nested too deeply."""
    out = Struct()
    _fill(out, data, 1)
    return out


def exact_json(data: Any) -> str:
    """JSON text of data with integers that a Struct does not hold exactly; empty for other data.
    data: whatever `struct` takes."""
    return json.dumps(data, sort_keys=True) if _has_large(data) else ""


def mapping(data: Struct, exact: str = "") -> dict[str, Any]:
    """JSON-like data of a Struct, by name; whole numbers come back as int.

    exact: the text beside the Struct; if it is not empty, it is read instead. Raises ValueError if
    the text is not a JSON object.
    """
    if exact:
        return _object(read_exact(exact))
    fields = data.fields
    return {key: _plain(fields[key]) for key in sorted(fields)}


def read_exact(text: str) -> Any:
    """Data of a JSON text. Raises ValueError if it is not JSON, or is nested too deeply.

    A text above LARGE_TEXT is read by Python's own code, which lets other threads run meanwhile.
    The decoder in C holds the interpreter for seconds.
    """
    try:
        found = (_IN_TURNS if len(text) > LARGE_TEXT else _AT_ONCE).decode(text)
        check_depth(found)
        _check_text(found)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error
    return found


def is_large(data: Any) -> bool:
    """Whether converting the data takes long enough to hold up an event loop. Looks at LARGE_DATA
    values at most."""
    left = LARGE_DATA
    waiting = [data]
    while waiting and left > 0:
        value = waiting.pop()
        inner = value.values() if isinstance(value, Mapping) else value
        if isinstance(value, Mapping | list | tuple):
            left -= len(value)
            waiting += inner if left > 0 else ()
    return left <= 0


def canonical(data: Any) -> str:
    """A text that is equal for equal JSON-like data, in any order of keys. 1.0 equals 1, as in JSON
    Schema. A value that is not JSON is written as its text."""
    return json.dumps(_whole(data), sort_keys=True, ensure_ascii=False, default=str)


def check_depth(data: Any, depth: int = 1) -> None:
    """Raises ValueError for data that are nested more deeply than a Struct may be."""
    if isinstance(data, Mapping):
        _check(depth)
        for value in data.values():
            check_depth(value, depth + 1)
    elif isinstance(data, list | tuple):
        _check(depth)
        for value in data:
            check_depth(value, depth + 1)


def _check_text(data: Any) -> None:
    """Raises ValueError for a text with half a surrogate pair."""
    if isinstance(data, str):
        data.encode()
    elif isinstance(data, dict):
        for key, value in data.items():
            key.encode()
            _check_text(value)
    elif isinstance(data, list):
        for value in data:
            if not isinstance(value, int | float):
                _check_text(value)


def _object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"JSON of {type(found).__name__} in place of an object")  # noqa: TRY004
    return found


def _check(depth: int) -> None:
    if depth > MOST_DEPTH:
        raise ValueError(f"nested more than {MOST_DEPTH} levels deep")


def _fill(out: Struct, data: Mapping[str, Any], depth: int) -> None:
    _check(depth)
    fields = out.fields
    for key, value in data.items():
        _write(fields[key], value, depth)


def _fill_list(out: ListValue, values: list[Any] | tuple[Any, ...], depth: int) -> None:
    _check(depth)
    for value in values:
        _write(out.values.add(), value, depth)


def _write(out: Value, value: Any, depth: int) -> None:
    if value is None:
        out.null_value = 0  # type: ignore[assignment]
    elif isinstance(value, bool):
        out.bool_value = value
    elif isinstance(value, str):
        out.string_value = value
    elif isinstance(value, int | float):
        out.number_value = _double(value)
    elif isinstance(value, Mapping):
        out.struct_value.SetInParent()
        _fill(out.struct_value, value, depth + 1)
    elif isinstance(value, list | tuple):
        out.list_value.SetInParent()
        _fill_list(out.list_value, value, depth + 1)
    else:
        raise TypeError(f"{type(value).__name__} is not JSON-like")


def _double(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _plain(value: Value) -> Any:
    # Not json_format: it refuses NaN, which tables have in place of missing numbers.
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return mapping(value.struct_value)
    if kind == "list_value":
        return [_plain(inner) for inner in value.list_value.values]
    if kind == "number_value":
        return _whole(value.number_value)
    if kind in ("string_value", "bool_value"):
        return getattr(value, kind)
    return None


def _whole(data: Any) -> Any:
    """Floats that are integers as integers, as far as a double is exact."""
    if isinstance(data, float):
        return int(data) if data.is_integer() and abs(data) < INEXACT else data
    if isinstance(data, Mapping):
        return {key: _whole(value) for key, value in data.items()}
    return [_whole(value) for value in data] if isinstance(data, list | tuple) else data


def _has_large(data: Any) -> bool:
    if isinstance(data, str | float) or data is None:
        return False
    if isinstance(data, int):
        return not -INEXACT < data < INEXACT
    if isinstance(data, list | tuple):
        return any(map(_has_large, data))
    return isinstance(data, Mapping) and any(map(_has_large, data.values()))
