"""Data that stand in a text: JSON, what Python prints, and what NumPy prints. Pure and bounded.

Tables that went through CSV hold lists and objects as text, and not all of them as JSON.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

from toolwright.json_data import check_depth, read_exact

LONGEST_LITERAL = 100_000
"""Characters of a text in Python's spelling: its parser takes a hundred bytes for each. A list of
quoted texts has no such limit."""
_QUOTED = r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\""
_TEXTS = re.compile(rf"({_QUOTED})[\s,]*+|(None)[\s,]*+|[\s,]++", re.DOTALL)
_NUMPY = re.compile(
    rf"({_QUOTED})(\s*+(?=['\"]))?|array\(|,\s*+dtype=[\w'<>]++\s*+\)"
    r"|([}\]])\s*+(?=[{\[])|(['\"\\])",
    re.DOTALL,
)
"""NumPy writes the kind of an array beside it, and blanks alone between its members."""


def data_in(text: str) -> Any:
    """Data of a text in JSON, or as Python or NumPy prints them. Raises ValueError for other texts,
    with the first error of the text as JSON."""
    text = text.strip()
    try:
        return read_exact(text)
    except ValueError as error:
        if (texts := _texts(text)) is not None:
            return texts
        found = _literal(text)
        if found is None:
            raise ValueError(f"{error}") from error
        return found


def texts_in(text: str) -> list[Any] | None:
    """Members of a list of texts that is written as one text, such as `['a', "it's"]`. None for any
    other text, a list of numbers alone included: that may be an answer as it is."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        leaves = list(_leaves(data_in(text)))
    except (ValueError, RecursionError):
        return None
    plain = all(leaf is None or isinstance(leaf, str | int | float) for leaf in leaves)
    return leaves if plain and any(isinstance(leaf, str) for leaf in leaves) else None


def _texts(text: str) -> list[str | None] | None:
    """A flat list of quoted texts, with commas (Python) or with blanks alone (NumPy) between."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    found: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        token = _TEXTS.match(text, at, end)
        if token is None:
            return None
        at = token.end()
        if token[1] is not None:
            try:
                found.append(_unquoted(token[1]))
            except (ValueError, SyntaxError):
                return None
        elif token[2] is not None:
            found.append(None)
    return found


def _unquoted(quoted: str) -> str:
    """The text between quotation marks. Raises ValueError or SyntaxError for a broken escape."""
    if "\\" not in quoted and "\n" not in quoted:
        return quoted[1:-1]
    if len(quoted) > LONGEST_LITERAL:
        raise ValueError("too long")
    with warnings.catch_warnings(action="ignore"):  # of odd escapes
        found = ast.literal_eval(quoted.replace("\r", "\\r").replace("\n", "\\n"))
    if not isinstance(found, str):
        raise ValueError("not a text")  # noqa: TRY004
    found.encode()
    return found


def _literal(text: str) -> Any:
    """The data of a Python literal, NumPy's arrays among them; None for anything else."""
    if len(text) > LONGEST_LITERAL:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd escapes and numbers in it
            found = ast.literal_eval(_NUMPY.sub(_as_python, text))
        check_depth(found)
        _check_json(found)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return found


def _as_python(token: re.Match[str]) -> str:
    """The token as Python prints it. Raises ValueError at a mark that opens no text: a search for
    the end of each would take quadratic time."""
    if token[4]:
        raise ValueError("a quotation mark that is not closed")
    comma = ", " if token[2] is not None or token[3] else ""
    return (token[1] or token[3] or "") + comma


def _leaves(found: Any) -> Iterator[Any]:
    if isinstance(found, list | tuple):
        for one in found:
            yield from _leaves(one)
    else:
        yield found


def _check_json(found: Any) -> None:
    """Raises TypeError or ValueError for data that JSON text cannot give: other types, keys
    that are not texts (1 and "1" would be one), infinite numbers, half a surrogate pair."""
    if isinstance(found, dict):
        for key, value in found.items():
            if not isinstance(key, str):
                raise TypeError(f"a key that is a {type(key).__name__}")
            key.encode()
            _check_json(value)
    elif isinstance(found, list | tuple):
        for value in found:
            _check_json(value)
    else:
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
