"""Names of tools: a free name, and code that defines its function under another name.

A session calls a tool by its name and runs the function of that name. So a tool that gets another
name in the memory needs code that defines that name.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import replace
from hashlib import sha256

from memory.types import Tool

LONGEST_NAME = 64
"""Maximum characters of a name: the limit of model interfaces."""
SUFFIX = 6
"""Hex digits that distinguish a name from an older tool's equal name."""


def digest(tool: Tool) -> str:
    """Hash of a tool's description and code, in hex."""
    return sha256(f"{tool.description}\n{tool.code}".encode()).hexdigest()


def free_name(tool: Tool, taken: Container[str]) -> str:
    """The tool's own name, else with a piece of its content's hash."""
    if tool.name not in taken:
        return tool.name
    content = digest(tool)
    for length in range(SUFFIX, LONGEST_NAME):
        name = f"{tool.name[: LONGEST_NAME - length - 1]}_{content[:length]}"
        if name not in taken and not says(tool.code, name):
            return name
    raise ValueError(f"every name that {tool.name} could get is taken")


def says(code: str, name: str) -> bool:
    """Whether the code contains the word anywhere."""
    return re.search(rf"\b{re.escape(name)}\b", code) is not None


def under_name(tool: Tool, name: str) -> Tool:
    """The tool with code that defines `name` as well, the same function.

    The new name is appended, so that what the code says of its own name (recursion, a decorator, a
    cache) stays true. Raises ValueError if the code has that word already, which would change what
    it means.
    """
    if name == tool.name:
        return tool
    if says(tool.code, name):
        raise ValueError(f"the code of {tool.name} has the word {name}")
    # A reader of the code finds a definition; a call of it runs the tool's own function.
    code = f"{tool.code}\n\n\ndef {name}():  # {tool.name}, under another name\n    ...\n\n\n"
    return replace(tool, name=name, code=f"{code}{name} = {tool.name}\n")
