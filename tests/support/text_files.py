"""Calls that open a file as text in the locale's encoding, and the same calls with UTF-8.

    python -m tests.support.text_files        # adds encoding="utf-8" wherever it is missing

ruff's `unspecified-encoding` sees only calls on a variable whose type is in sight, a tenth of them.
So this lint goes by the names of the methods.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

_TEXT_MODE = re.compile(r"[rwax]t?\+?t?")
_PLACES = {"read_text": 0, "write_text": 1, "TextIOWrapper": 1}
"""Methods, and the place of `encoding` among their positional arguments."""
_NO_TEXT = ("av", "os", "tarfile", "zipfile")
"""Modules whose `open` opens something else than text."""
_OF_BYTES = ("_printed", "ledger", "source", "doors")
"""Names of objects of our own whose `open` opens no text file."""
_TEMPORARY = ("NamedTemporaryFile", "TemporaryFile", "SpooledTemporaryFile")


def unnamed(text: str) -> list[ast.Call]:
    """Calls that open a file as text, in the locale's encoding."""
    tree = ast.parse(text)
    bare = set(_without_arguments(tree))
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and not any(word.arg in ("encoding", None) for word in node.keywords)
        and (_opens_text(node) or node in bare)
    ]


def _opens_text(call: ast.Call) -> bool:
    modes = [one.value for one in call.args if isinstance(one, ast.Constant)]
    modes += [
        word.value.value
        for word in call.keywords
        if word.arg == "mode" and isinstance(word.value, ast.Constant)
    ]
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", "")
    if name in _PLACES:
        return len(call.args) <= _PLACES[name]
    if name in _TEMPORARY or name == "fdopen":
        return any(_is_text(mode) for mode in modes)
    if name != "open":
        return False
    if isinstance(call.func, ast.Name):
        named = len(call.args) > 1 or any(word.arg == "mode" for word in call.keywords)
        return not named or any(_is_text(mode) for mode in modes)
    if _owner(call.func) in (*_NO_TEXT, *_OF_BYTES):
        return False
    first = call.args[0] if call.args else None
    mode = getattr(first, "value", None) if first is not None else (modes or [None])[0]
    zipped = any(isinstance(one, str) and one in ("rt", "wt", "at", "xt") for one in modes)
    return zipped or (isinstance(first, ast.Constant | None) and _is_text(mode))


def _owner(method: ast.expr) -> str:
    """Name of the object whose method it is: x of x.open, a.x.open and x[0].open."""
    owner = getattr(method, "value", None)
    if isinstance(owner, ast.Subscript):
        owner = owner.value
    return str(getattr(owner, "attr", None) or getattr(owner, "id", ""))


def _is_text(mode: object) -> bool:
    return isinstance(mode, str) and _TEXT_MODE.fullmatch(mode) is not None


def _without_arguments(tree: ast.AST) -> Iterator[ast.AST]:
    """`x.open()` that is read at once: a path's, since what else has such a method is awaited."""
    for node in ast.walk(tree):
        read: list[ast.expr] = []
        if isinstance(node, ast.With):
            read = [item.context_expr for item in node.items]
        elif isinstance(node, ast.For | ast.comprehension):
            read = [node.iter]
        for one in read:
            bare = isinstance(one, ast.Call) and not one.args and not one.keywords
            if not bare or not isinstance(one.func, ast.Attribute) or one.func.attr != "open":
                continue
            if _owner(one.func) not in _OF_BYTES:
                yield one


def named(text: str) -> str:
    """The program with `encoding='utf-8'` in each of those calls: in single quotation marks, since
    some stand in an f-string. `ruff format` changes the others."""
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    calls = unnamed(text)
    ends = [starts[one.end_lineno - 1] + one.end_col_offset - 1 for one in calls]  # type: ignore[operator]
    for end in sorted(ends, reverse=True):
        comma = b"" if data[:end].rstrip().endswith((b"(", b",")) else b", "
        data = data[:end] + comma + b"encoding='utf-8'" + data[end:]
    return data.decode()


def main() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], capture_output=True, check=True, encoding="utf-8"
    )
    for file in map(Path, listed.stdout.split()):
        text = file.read_text(encoding="utf-8")
        if unnamed(text):
            file.write_text(named(text), encoding="utf-8")
            print(file)


if __name__ == "__main__":
    main()
