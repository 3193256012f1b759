"""Sources of tools outside this service, by the first part of an argument of `toolsvc serve`:
`mcp:...`.

A source makes tools from the rest of the argument: a server's tools, a recording's, or tools that a
model plays. `--set mcp.option=value` sets an option of its `Config` for all arguments of its kind.
Its package registers it as an entry point (`toolsvc.plugin.registry`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel

from toolsvc.errors import StartError
from toolsvc.plugin.registry import SOURCES, loaded, registered
from toolsvc.plugin.tool import NoConfig, Tool
from toolsvc.sandbox.config import SandboxConfig


class Source:
    """Base class of every source."""

    where: ClassVar[str]
    """Placeholder for the text after the colon, in capitals: FILE."""
    description: ClassVar[str]
    Config: ClassVar[type[BaseModel]] = NoConfig

    @classmethod
    async def tools(cls, where: str, options: Any, sandbox: SandboxConfig) -> list[Tool]:
        """Tools of the source. where: text after the colon. options: a `Config`. Raises StartError
        if the source is not there, or has no tools."""
        raise NotImplementedError(f"{cls.__name__} has no tools")


def source(kind: str) -> type[Source]:
    """Class of a registered source. Raises StartError if its packages are missing."""
    found = loaded(SOURCES, kind)
    if not (isinstance(found, type) and issubclass(found, Source)):
        value = registered(SOURCES)[kind].value
        raise StartError(f"source {kind!r}: {value} is not a subclass of Source")
    return found


def kind_of(word: str) -> str:
    """Source that the word begins with; "" if it begins with no source."""
    kind, colon, _ = word.partition(":")
    return kind if colon and kind in registered(SOURCES) else ""
