"""Arguments of a tool as its maker describes them: JSON schemas, or words such as "a, b (int)".

SEARL's listing 1 describes arguments in free text. Their names are then those of the function; the
words add types where they say them plainly, and never refuse a call that the first inputs show to
be right. Tool services, the recipe and its hook read descriptions here, so that they agree.
Pure and linear in the length of the text; code is parsed and never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolwright.reading.json_text.json_bounds import OutOfBounds, read_json

LONGEST_WORDS = 4096
"""Maximum length of a description in words, in characters."""
MOST_ARGUMENTS = 64
"""Maximum number of arguments of a tool that is described in words."""

_TYPES = {
    "integer": ("int", "integer"),
    "number": ("float", "double", "number"),
    "string": ("str", "string"),
    "boolean": ("bool", "boolean"),
    "array": ("list", "array"),
    "object": ("dict", "object"),
}
_TYPE_OF = {word: kind for kind, words in _TYPES.items() for word in words}
_PIECE = re.compile(r"[^\W\d]\w*|[^\w\s]|\n")
_ENDS = frozenset(",;).\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Arguments of a function, by name. required: those without a default."""

    names: tuple[str, ...]
    required: tuple[str, ...]


def in_words(arguments: object) -> str | None:
    """The description where it is free text; None where it is JSON or meant to be: a mapping, no
    text at all, or a text that begins with a brace."""
    if not isinstance(arguments, str):
        return None
    text = arguments.strip()
    return text if text and not text.startswith("{") else None


def object_schema(arguments: object) -> dict[str, Any] | None:
    """JSON schema of all arguments, from one of the whole or of each by name; None where the
    description is not JSON."""
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments or "{}")
        except OutOfBounds:
            return None
    if not isinstance(arguments, Mapping):
        return None
    if isinstance(arguments.get("properties"), Mapping) and "type" in arguments:
        return dict(arguments)
    return {"type": "object", "properties": dict(arguments)}


def schemas(
    words: str, names: Sequence[str], inputs: Mapping[str, Any] = {}
) -> dict[str, dict[str, str]]:
    """JSON schema of each name: a type where the words say one, else any value.

    A type stands in brackets or after a colon, for all names before it that have none yet: "a, b
    (int)", "a: int, b: str". inputs: arguments of a call that worked; a type that they do not have
    is left out.
    """
    kinds: dict[str, str] = {}
    waiting: list[str] = []
    pieces = [*_PIECE.findall(words[:LONGEST_WORDS]), ",", ","]
    known = set(names)
    for place, piece in enumerate(pieces[:-2]):
        if piece in ("(", ":"):
            kind = _TYPE_OF.get(pieces[place + 1].lower())
            if kind is not None and _is_whole(kind, pieces[place + 2]):
                kinds.update((name, kind) for name in waiting)
            waiting = []  # what stands there is said of them, a type or something else
        elif piece in known and piece not in kinds and piece not in waiting:
            waiting.append(piece)
    return {
        name: {"type": kinds[name]}
        if name in kinds and (name not in inputs or _has(inputs[name], kinds[name]))
        else {}
        for name in names
    }


def signature(function: ast.FunctionDef) -> Signature | None:
    """Arguments of a function; None where a call cannot give all of them by name."""
    args = function.args
    if args.posonlyargs or args.vararg or args.kwarg:
        return None
    names = [one.arg for one in (*args.args, *args.kwonlyargs)]
    optional = {one.arg for one in args.args[len(args.args) - len(args.defaults) :]}
    optional |= {
        one.arg
        for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
        if default is not None
    }
    return Signature(
        names=tuple(names), required=tuple(name for name in names if name not in optional)
    )


def function_of(code: str, name: str) -> ast.FunctionDef | None:
    """The last plain function of that name; None where the code does not parse or has none."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name]
    return found[-1] if found else None


def _is_whole(kind: str, after: str) -> bool:
    """Whether the type ends there: "int" does, "number of items" and "int or str" do not."""
    return after in _ENDS or (kind in ("array", "object") and after == "[")


def _has(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    kinds: dict[str, tuple[type, ...]] = {
        "number": (int, float),
        "string": (str,),
        "array": (list, tuple),
        "object": (dict,),
    }
    return isinstance(value, kinds.get(kind, ()))
