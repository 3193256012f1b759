"""Tools that stand elsewhere, by what a word of `toolsvc serve` begins with: `mcp:...`.

A source turns the rest of the word into tools: those of a server, of a recording, of a model that
plays them. Like a built-in tool it has `Options`, set by `--set mcp.option=value` for all words of
its kind, and its module is imported when it is asked for.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel

from toolsvc.plugin.built_in import NoOptions, imported
from toolsvc.plugin.tool import Tool
from toolsvc.sandbox.config import SandboxConfig

SOURCES: dict[str, str] = {
    "cassette": "toolsvc.sources.cassette.source:CassetteSource",
    "grpc": "toolsvc.sources.remote.remote_tool:RemoteSource",
    "mcp": "toolsvc.sources.mcp.source:McpSource",
    "memory": "toolsvc.sources.memory.source:MemorySource",
    "verltool": "toolsvc.sources.verltool.source:VerlToolSource",
    "hybrid": "toolsvc.sources.simulated.source:HybridSource",
    "simulated": "toolsvc.sources.simulated.source:SimulatedSource",
}
"""Beginning to "module:class"."""


class Source:
    """What every source is."""

    where: ClassVar[str]
    """What stands after the colon, in capitals: FILE."""
    description: ClassVar[str]
    Options: ClassVar[type[BaseModel]] = NoOptions

    @classmethod
    async def tools(cls, where: str, options: Any, sandbox: SandboxConfig) -> list[Tool]:
        """`where`: what stands after the colon. `options`: an `Options`. StartError if it is not
        there, or gives no tools."""
        raise NotImplementedError(f"{cls.__name__} has no tools")


def source(kind: str) -> type[Source]:
    """The class behind a beginning of SOURCES. StartError if its packages are missing."""
    found: type[Source] = imported(kind, SOURCES[kind])
    return found


def kind_of(word: str) -> str:
    """The source that the word begins with, "" if it is none."""
    kind, colon, _ = word.partition(":")
    return kind if colon and kind in SOURCES else ""
