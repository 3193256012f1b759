"""`toolsvc serve verltool:PATH`: the tool classes of a VerlTool tool file, unchanged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from toolsvc.errors import StartError
from toolsvc.plugin.tool import STRICT, Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.elsewhere import Source
from toolsvc.sources.verltool.hosted_tool import hosted
from toolsvc.sources.verltool.loading import load_tool_classes


class VerlToolOptions(BaseModel):
    """Options of VerlTool's tools."""

    model_config = STRICT

    stop: tuple[str, ...] | None = Field(
        default=None, description="stop strings; default: the class's stop_tokens"
    )
    run_limit: float = Field(
        default=30.0, gt=0, description="seconds of a call, above the tool's own timeout"
    )
    num_workers: int = Field(default=1, ge=1, description="handed to the class")


class VerlToolSource(Source):
    where = "FILE"
    description = "The tool classes of a VerlTool tool file."
    Config = VerlToolOptions

    @classmethod
    async def tools(
        cls, where: str, options: VerlToolOptions, sandbox: SandboxConfig
    ) -> list[Tool]:
        # In a thread: the files and constructors of others may wait, or run an event loop.
        return await asyncio.to_thread(_tools, Path(where), options)


def _tools(file: Path, options: VerlToolOptions) -> list[Tool]:
    """The thread has an event loop meanwhile, as the thread has in which VerlTool makes its tools:
    constructors ask for it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return [
            hosted(_made(file, kind, options), _stops(file, kind, options), options.run_limit)
            for kind in load_tool_classes(file)
        ]
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _made(file: Path, kind: type[Any], options: VerlToolOptions) -> Any:
    try:
        return kind(num_workers=options.num_workers)
    except Exception as error:
        raise StartError(f"verltool:{file}: {kind.__name__} cannot be made: {error!r}") from error


def _stops(file: Path, kind: type[Any], options: VerlToolOptions) -> tuple[str, ...]:
    if options.stop is not None:
        return options.stop
    stops = getattr(kind, "stop_tokens", None)
    if stops is None:
        raise StartError(
            f"verltool:{file}: {kind.__name__} has no stop_tokens, so the end of an action "
            "is not known: name your action_stop_tokens, --set verltool.stop='[\"</search>\"]'"
        )
    return tuple(stops)
