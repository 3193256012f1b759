"""The sources `simulated:FILE` and `hybrid:FILE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from toolsvc.errors import StartError
from toolsvc.plugin.tool import STRICT, Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.schemas.functions import FunctionTool, NotTools, function_tools
from toolsvc.sources.elsewhere import Source
from toolsvc.sources.loader import load_tools
from toolsvc.sources.simulated.cast import Cast
from toolsvc.sources.simulated.options import SimulatedOptions
from toolsvc.sources.simulated.simulated_tool import MadeTools, SimulatedTool


class SimulatedSource(Source):
    """The tools of a file; without a file, those that a model makes from each question."""

    where = "[FILE]"
    description = "Tools that a model plays; without a file, it makes them from each question."
    Config = SimulatedOptions

    @classmethod
    async def tools(
        cls, where: str, options: SimulatedOptions, sandbox: SandboxConfig
    ) -> list[Tool]:
        if not where:
            return [MadeTools(Cast(options))]
        functions = _functions(where, _data(where))
        cast = Cast(options)
        return [SimulatedTool(cast, function) for function in functions]


class _Hybrid(BaseModel):
    """A file of `hybrid:`."""

    model_config = STRICT

    live: tuple[str, ...] = Field(min_length=1)
    """Words of `toolsvc serve`; Python files are found beside this one."""
    tools: list[Any] = Field(min_length=1)
    """Function-calling schemas; one that a live tool has the name of is that tool."""


class HybridSource(Source):
    where = "FILE"
    description = "Tools of which a model plays those that are not there."
    Config = SimulatedOptions

    @classmethod
    async def tools(
        cls, where: str, options: SimulatedOptions, sandbox: SandboxConfig
    ) -> list[Tool]:
        try:
            hybrid = _Hybrid.model_validate(_data(where))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            raise StartError(
                f'{where}: {place}: {first["msg"]}; write {{"live": ["NAME"], "tools": [...]}}'
            ) from error
        functions = _functions(where, hybrid.tools)
        live = await load_tools([_beside(where, word) for word in hybrid.live], {}, sandbox)
        names = {tool.name for tool in live}
        cast = Cast(options)
        played = [function for function in functions if function.name not in names]
        return [*live, *(SimulatedTool(cast, function) for function in played)]


def _functions(where: str, data: Any) -> list[FunctionTool]:
    try:
        return function_tools(data)
    except NotTools as error:
        raise StartError(f"{where}: {error}") from error


def _data(where: str) -> Any:
    try:
        return json.loads(Path(where).expanduser().read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StartError(f"{where or 'hybrid:'} is no JSON file of tools: {error}") from error


def _beside(where: str, word: str) -> str:
    return str(Path(where).expanduser().parent / word) if word.endswith(".py") else word
