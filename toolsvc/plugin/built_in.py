"""The tools that come with the service, by name, and how one is made from an operator's options.

A built-in tool is a `Tool` that is made of its `Options`, a pydantic model whose field descriptions
are its help. Its module is imported when the tool is asked for, so a
service of one tool needs the packages of no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from toolsvc.errors import StartError
from toolsvc.plugin.tool import STRICT, Tool
from toolsvc.sandbox.config import SandboxConfig
from toolwright.recipe.assignments import AssignmentError, assign

BUILT_IN = {
    "python": "toolsvc.tools.python:PythonTool",
    "bash": "toolsvc.tools.bash.bash_tool:BashTool",
    "sql": "toolsvc.tools.sql.sql_tool:SqlTool",
    "search": "toolsvc.tools.search:SearchTool",
    "web_search": "toolsvc.tools.web_search.web_search_tool:WebSearchTool",
    "finish": "toolsvc.tools.finish:FinishTool",
    "judge": "toolsvc.tools.judge.judge_tool:JudgeTool",
    "browser": "toolsvc.tools.browser.browser_tool:BrowserTool",
    "swe": "toolsvc.tools.swe.swe_tool:SweTool",
    "image": "toolsvc.tools.image.image_tool:ImageTool",
    "create_and_execute": "toolsvc.tools.create.create_tool:CreateTool",
}
"""Name to "module:class"."""

_EXTRAS = {
    "httpx2": "mcp",
    "kubernetes_asyncio": "kubernetes",
    "mcp": "mcp",
    "playwright": "browser",
}
"""Packages that another extra of pyproject.toml than `toolsvc` brings, as they are imported."""


class NoOptions(BaseModel):
    """For a tool without any."""

    model_config = STRICT


class BuiltIn(Tool):
    """What every built-in tool is."""

    Options: ClassVar[type[BaseModel]] = NoOptions

    def __init__(self, options: Any = None) -> None:
        """`options`: an `Options`; for a tool without any, nothing."""
        self._options = options

    @classmethod
    def make(cls, options: Any, sandbox: SandboxConfig) -> Self:
        """The tool of an operator's options. For those that need more than them: the sandbox's
        settings, say. StartError if the tool cannot work so."""
        return cls(options)


def built_in(name: str) -> type[BuiltIn]:
    """The class behind a name of BUILT_IN. StartError if its packages are missing."""
    found: type[BuiltIn] = imported(name, BUILT_IN[name])
    return found


def make_built_in(name: str, given: Mapping[str, Any], sandbox: SandboxConfig) -> BuiltIn:
    """The tool with the options that were given. StartError names the option that is wrong."""
    kind = built_in(name)
    return kind.make(validated(kind.Options, name, given), sandbox)


def imported(name: str, path: str) -> Any:
    """What stands at "module:class" for `name`. StartError if its packages are missing."""
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ImportError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0], "toolsvc")
        raise StartError(
            f"tool {name!r} needs the package {error.name}: pip install 'toolwright[{extra}]'"
        ) from error


def validated(model: type[BaseModel], name: str, given: Mapping[str, Any]) -> BaseModel:
    """The options that were given for `name`. StartError names the one that is wrong."""
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        faults = "; ".join(_fault(model, name, item) for item in error.errors())
        known = ", ".join(model.model_fields) or "none"
        raise StartError(f"{faults} (options of {name}: {known})") from error


def _fault(model: type[BaseModel], name: str, item: ErrorDetails) -> str:
    option = ".".join(map(str, (name, *item["loc"])))
    says = item["msg"].removeprefix("Value error, ")
    field = model.model_fields.get(str(item["loc"][0])) if len(item["loc"]) == 1 else None
    if item["type"] == "missing" and field is not None and field.description:
        says = f"{says}: {field.description}"
    return f"--set {option}: {says}" if item["loc"] else f"{name}: {says}"


def parse_settings(words: list[str]) -> dict[str, dict[str, Any]]:
    """`tool.option=value`, one a word, as options by tool."""
    settings: dict[str, dict[str, Any]] = {}
    for word in words:
        tool, dot, option = word.partition("=")[0].partition(".")
        if not (dot and tool and option):
            raise StartError(f"--set {word}: write it as tool.option=value")
        try:
            assign(settings, word)
        except AssignmentError as error:
            raise StartError(f"--set {error}") from error
    return settings
