"""`toolsvc serve gym:ID`: an environment of gymnasium, textarena or reasoning-gym.

gym:FrozenLake-v1?is_slippery=false      an id of gymnasium's registry, with its arguments
gym:my_module:MyEnv?size=5               a class with gymnasium's `reset` and `step`
gym:textarena/Sudoku-v0                  a game for one player
gym:reasoning_gym/leg_counting           a question, whose answer gets a score
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from toolsvc.errors import StartError
from toolsvc.plugin.tool import Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.elsewhere import Source
from toolsvc.sources.gym.gym_tool import GymOptions, GymTool

LIBRARIES = {"gymnasium": "gymnasium", "textarena": "textarena", "reasoning_gym": "reasoning-gym"}
"""Packages by their import names."""
_FOLDERS = ("site-packages", "dist-packages")


class GymSource(Source):
    where = "ID"
    description = "An environment of gymnasium, textarena or reasoning-gym."
    Config = GymOptions

    @classmethod
    async def tools(cls, where: str, options: GymOptions, sandbox: SandboxConfig) -> list[Tool]:
        library, name, arguments = read_where(where)
        if options.actions and library != "gymnasium":
            raise StartError(f"gym.actions names gymnasium's actions, and {library} has none")
        packages = packages_of(library, options.packages)
        sandbox = replace(sandbox, packages=(*sandbox.packages, *packages))
        return [GymTool(library, name, arguments, options, sandbox)]


def read_where(where: str) -> tuple[str, str, dict[str, Any]]:
    """(library, id, arguments) of the text after the colon. Values are JSON, or else text. Raises
    StartError if it names no environment."""
    path, _, query = where.partition("?")
    library, slash, name = path.partition("/")
    if not (slash and library in LIBRARIES):
        library, name = "gymnasium", path
    if not name:
        raise StartError("gym: name an environment: gym:FrozenLake-v1, gym:textarena/Sudoku-v0")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as error:
        raise StartError(f"gym:{where}: write arguments as ?size=5&name=x ({error})") from error
    return library, name, {key: _value(text) for key, text in pairs}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def packages_of(library: str, given: Sequence[str]) -> tuple[str, ...]:
    """Folders in which the sandbox finds the library: those given, or the service's own too if
    they lack it. Raises StartError if it is in none."""
    folders = tuple(given)
    if any((Path(folder) / library).is_dir() for folder in folders):
        return folders
    if find_spec(library) is None:
        raise StartError(
            f"gym: {LIBRARIES[library]} is not installed here: pip install it, or name the folder "
            "of packages that has it by --set gym.packages"
        )
    own = (entry for entry in sys.path if Path(entry).name in _FOLDERS and Path(entry).is_dir())
    return (*folders, *dict.fromkeys(own))
