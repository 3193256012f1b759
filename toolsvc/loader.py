"""From the words after `toolsvc serve` to tools: built-in names and Python files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from toolsvc.decorator import tool_of
from toolsvc.errors import StartError
from toolsvc.tool import Tool
from toolwright.imports import ImportPathError, load_file

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


def load_tools(words: Iterable[str], built_in: Mapping[str, Callable[[], Tool]]) -> list[Tool]:
    """One or more tools a word. StartError names the word and what to do about it."""
    tools: list[Tool] = []
    for word in words:
        if word in built_in:
            tools.append(built_in[word]())
        elif word.endswith(".py"):
            tools += load_tool_file(Path(word))
        else:
            known = ", ".join(sorted(built_in))
            raise StartError(f"no tool {word!r}: name one of {known}, or a Python file (tool.py)")
    seen: set[str] = set()
    for tool in tools:
        if not _NAME.match(tool.name):
            raise StartError(f"tool name {tool.name!r}: use letters, digits, _ and - only")
        if tool.name in seen:
            raise StartError(f"two tools are called {tool.name!r}: give one of them another name")
        seen.add(tool.name)
    return tools


def load_tool_file(path: Path) -> list[Tool]:
    """Tools that the file itself defines. StartError if it cannot be imported or has none."""
    try:
        module = load_file(path)
    except ImportPathError as error:
        raise StartError(str(error)) from error
    tools: list[Tool] = []
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", module.__name__) != module.__name__:
            continue
        try:
            found = tool_of(value)
        except Exception as error:
            raise StartError(f"{path}: {name} cannot be made: {error!r}") from error
        if found is not None:
            tools.append(found)
    if not tools:
        raise StartError(
            f"{path} defines no tool: decorate a function with @toolsvc.tool, or subclass "
            "toolsvc.Tool and set its name"
        )
    return tools
