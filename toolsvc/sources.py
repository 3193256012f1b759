"""Tools that stand elsewhere, by what a word of `toolsvc serve` begins with: `mcp:...`.

A source turns the rest of the word into tools: those of a server, of a recording, of a model that
plays them. Like a built-in tool it has `Options`, set by `--set mcp.option=value` for all words of
its kind, and its module is imported when it is asked for.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel

from toolsvc.built_in import NoOptions
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.tool import Tool

SOURCES: dict[str, str] = {
    "cassette": "toolsvc.cassette.source:CassetteSource",
    "grpc": "toolsvc.remote.tool:RemoteSource",
    "mcp": "toolsvc.mcp.source:McpSource",
    "verltool": "toolsvc.verltool.source:VerlToolSource",
    "hybrid": "toolsvc.simulated.source:HybridSource",
    "simulated": "toolsvc.simulated.source:SimulatedSource",
}
"""Beginning to "module:class"."""


class Source:
    """What every source is."""

    Options: ClassVar[type[BaseModel]] = NoOptions

    @classmethod
    async def tools(cls, where: str, options: Any, sandbox: SandboxConfig) -> list[Tool]:
        """`where`: what stands after the colon. `options`: an `Options`. StartError if it is not
        there, or gives no tools."""
        raise NotImplementedError(f"{cls.__name__} has no tools")


def kind_of(word: str) -> str:
    """The source that the word begins with, "" if it is none."""
    kind, colon, _ = word.partition(":")
    return kind if colon and kind in SOURCES else ""
