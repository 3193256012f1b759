"""From the words after `toolsvc serve` to tools: built-in names, Python files, and sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from toolsvc.errors import StartError
from toolsvc.plugin.built_in import BUILT_IN, make_built_in, validated
from toolsvc.plugin.decorator import tool_of
from toolsvc.plugin.tool import LEAST_RUN_LIMIT, MOST_RUN_LIMIT, Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.elsewhere import SOURCES, kind_of, source
from toolwright.imports import ImportPathError, load_file

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


async def load_tools(
    words: Sequence[str], settings: Mapping[str, Mapping[str, Any]], sandbox: SandboxConfig
) -> list[Tool]:
    """One or more tools a word; `settings` are options of built-in tools and of sources, by name.
    StartError names the word and what to do about it."""
    served = {word for word in words if word in BUILT_IN} | set(map(kind_of, words)) - {""}
    for name in settings:
        if name not in served:
            raise StartError(f"--set {name}: nothing of that name is served here that has options")
    tools: list[Tool] = []
    for word in words:
        if word in BUILT_IN:
            tools.append(make_built_in(word, settings.get(word, {}), sandbox))
        elif kind := kind_of(word):
            found = source(kind)
            options = validated(found.Options, kind, settings.get(kind, {}))
            tools += await found.tools(word.partition(":")[2], options, sandbox)
        elif word.endswith(".py"):
            tools += load_tool_file(Path(word))
        else:
            raise no_such_word(word, "a Python file (tool.py)")
    seen: set[str] = set()
    for tool in tools:
        if not _NAME.match(tool.name):
            raise StartError(f"tool name {tool.name!r}: use letters, digits, _ and - only")
        if tool.name in seen:
            raise StartError(f"two tools are called {tool.name!r}: give one of them another name")
        seen.add(tool.name)
    return tools


def no_such_word(word: str, otherwise: str) -> StartError:
    """For a word that is neither a built-in tool nor a source. `otherwise`: what else would do."""
    known = [*BUILT_IN, *(f"{kind}:..." for kind in SOURCES)]
    near = get_close_matches(word, known, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return StartError(f"no tool {word!r}{hint}: name one of {', '.join(known)}, or {otherwise}")


def load_tool_file(path: Path) -> list[Tool]:
    """Tools that the file itself defines. Raises StartError if the file cannot be imported, has no
    tool, or has one with an impossible run limit."""
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
            _check_run_limit(path, found)
            tools.append(found)
    if not tools:
        raise StartError(
            f"{path} defines no tool: decorate a function with @toolsvc.tool, or subclass "
            "toolsvc.Tool and set its name"
        )
    return tools


def _check_run_limit(path: Path, tool: Tool) -> None:
    """Raises StartError for a limit that no call could have."""
    limit: object = tool.run_limit
    if (
        not isinstance(limit, int | float)
        or isinstance(limit, bool)
        or not LEAST_RUN_LIMIT <= limit <= MOST_RUN_LIMIT
    ):
        raise StartError(
            f"{path}: tool {tool.name!r}: run_limit = {limit!r:.80} is no time of a call: set a "
            f"number of seconds, {LEAST_RUN_LIMIT:g} at least and {MOST_RUN_LIMIT:,} at most"
        )
