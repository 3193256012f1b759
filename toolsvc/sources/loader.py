"""Makes tools from the arguments of `toolsvc serve`: registered names, Python files, and
sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from toolsvc.errors import StartError
from toolsvc.plugin.decorator import tool_of
from toolsvc.plugin.registry import (
    SOURCES,
    TOOLS,
    check_run_limit,
    make_registered,
    make_tool,
    registered,
    validated,
)
from toolsvc.plugin.tool import Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.elsewhere import kind_of, source
from toolwright.imports import ImportPathError, load_file

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


async def load_tools(
    words: Sequence[str], settings: Mapping[str, Mapping[str, Any]], sandbox: SandboxConfig
) -> list[Tool]:
    """Tools of the words, one or more a word. settings: options by the name of a tool or a source.
    Raises StartError, which names the word and the fix."""
    paths = [word for word in words if word.endswith(".py") and not kind_of(word)]
    files = {word: tools_in_file(Path(word)) for word in paths}
    served = {found.name for tools in files.values() for found in tools}
    for word in words:
        if word not in files:
            served.add(kind_of(word) or word)
    for name in settings:
        if name not in served:
            raise StartError(f"--set {name}: nothing of that name is served here that has options")
    made: list[Tool] = []
    for word in words:
        if word in files:
            path = Path(word)
            made += [
                make_from_file(path, found, settings.get(found.name, {}), sandbox)
                for found in files[word]
            ]
        elif kind := kind_of(word):
            config = validated(source(kind).Config, kind, settings.get(kind, {}))
            made += await source(kind).tools(word.partition(":")[2], config, sandbox)
        elif word in registered(TOOLS):
            made.append(make_registered(word, settings.get(word, {}), sandbox))
        else:
            raise no_such_word(word, "a Python file (tool.py)")
    seen: set[str] = set()
    for tool in made:
        if not _NAME.match(tool.name):
            raise StartError(f"tool name {tool.name!r}: use letters, digits, _ and - only")
        if tool.name in seen:
            raise StartError(f"two tools are called {tool.name!r}: give one of them another name")
        seen.add(tool.name)
    return made


def no_such_word(word: str, otherwise: str) -> StartError:
    """Error for a word that is neither a tool nor a source. otherwise: what else would do."""
    known = [*registered(TOOLS), *(f"{kind}:..." for kind in registered(SOURCES))]
    near = get_close_matches(word, known, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return StartError(f"no tool {word!r}{hint}: name one of {', '.join(known)}, or {otherwise}")


def tools_in_file(path: Path) -> list[type[Tool] | Tool]:
    """Tools that the file itself defines, not made yet unless the file makes them. Raises
    StartError if the file cannot be imported or has no tool."""
    try:
        module = load_file(path)
    except ImportPathError as error:
        raise StartError(str(error)) from error
    own = [
        tool_of(value)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", module.__name__) == module.__name__
    ]
    found = [one for one in own if one is not None]
    if not found:
        raise StartError(
            f"{path} defines no tool: decorate a function with @toolsvc.tool, or subclass "
            "toolsvc.Tool and set its name"
        )
    return found


def make_from_file(
    path: Path, found: type[Tool] | Tool, given: Mapping[str, Any], sandbox: SandboxConfig
) -> Tool:
    """Tool of a file with the options that were given. Raises StartError for a wrong option, a
    constructor that fails, or a run limit that no call can have."""
    if isinstance(found, Tool):
        if given:
            raise StartError(f"--set {found.name}: {path} makes this tool itself: leave its class")
        check_run_limit(found, str(path))
        return found
    return make_tool(found, found.name, given, sandbox, where=str(path))
