"""Tools and sources that packages register as entry points, and how an operator's options make one.

A package registers a tool by a line under `[project.entry-points."toolwright.tools"]`:
`NAME = "module:class"`. The module is imported when its name is served, so a service of one tool
needs the packages of no other.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from toolsvc.errors import StartError
from toolsvc.plugin.tool import LEAST_RUN_LIMIT, MOST_RUN_LIMIT, NoConfig, Tool
from toolsvc.sandbox.config import SandboxConfig
from toolwright.recipe.assignments import AssignmentError, assign

TOOLS = "toolwright.tools"
"""Group of entry points for classes of tools."""
SOURCES = "toolwright.tool_sources"
"""Group of entry points for classes of sources (`toolsvc.sources.elsewhere`)."""

_OURS = "toolwright"
"""Package whose names no other package can take."""
_EXTRAS = {
    "httpx2": "mcp",
    "kubernetes_asyncio": "kubernetes",
    "mcp": "mcp",
    "playwright": "browser",
}
"""Extras of pyproject.toml for packages that the extra `toolsvc` lacks, by their import name."""


_OLD = (
    f"the installed package {_OURS} is older than its code{{}}: install it again (`make setup`, or "
    "`pip install -e .`)"
)


@cache
def registered(group: str) -> Mapping[str, EntryPoint]:
    """Entry points of a group by name, this package's first. Raises StartError if this package
    registers nothing there: it was installed before it had the group."""
    found = entry_points(group=group)
    ours = {point.name: point for point in found if _package(point) == _OURS}
    if not ours:
        raise StartError(_OLD.format(f" and registers no {group}"))
    others: dict[str, EntryPoint] = {}
    for point in found:
        if point.name in ours:
            continue
        if point.name in others:
            names = f"{_package(others[point.name])} and {_package(point)}"
            raise StartError(f"{names} both register {point.name!r}: uninstall one of them")
        others[point.name] = point
    return {**ours, **others}


def tool_class(name: str) -> type[Tool]:
    """Class of a registered tool. Raises StartError if its packages are missing."""
    kind = loaded(TOOLS, name)
    if not (isinstance(kind, type) and issubclass(kind, Tool)):
        value = registered(TOOLS)[name].value
        raise StartError(f"tool {name!r}: {value} is not a subclass of toolsvc.Tool")
    return kind


def make_registered(name: str, given: Mapping[str, Any], sandbox: SandboxConfig) -> Tool:
    """Registered tool with the options that were given. Raises StartError for a wrong option."""
    kind = tool_class(name)
    tool = make_tool(kind, name, given, sandbox, where=registered(TOOLS)[name].value)
    tool.registered = True
    return tool


def make_tool(
    kind: type[Tool], name: str, given: Mapping[str, Any], sandbox: SandboxConfig, *, where: str
) -> Tool:
    """Tool of a class. given: options of `name`. where: file or module of the class.

    Raises StartError for a wrong option, a constructor that fails, or a run limit that no call can
    have.
    """
    config = validated(kind.Config, name, given)
    known: dict[str, Any] = {"sandbox": sandbox}
    if kind.Config is not NoConfig:
        known["config"] = config
    wanted = inspect.signature(kind).parameters
    try:
        tool = kind(**{word: value for word, value in known.items() if word in wanted})
    except StartError:
        raise
    except Exception as error:
        raise StartError(f"{where}: {kind.__name__} cannot be made: {error!r}") from error
    if "config" in known and "config" not in wanted:
        tool.config = config
    check_run_limit(tool, where)
    return tool


def check_run_limit(tool: Tool, where: str) -> None:
    """Raises StartError for a run limit that no call can have."""
    limit: object = tool.run_limit
    if (
        not isinstance(limit, int | float)
        or isinstance(limit, bool)
        or not LEAST_RUN_LIMIT <= limit <= MOST_RUN_LIMIT
    ):
        raise StartError(
            f"{where}: tool {tool.name!r}: run_limit = {limit!r:.80} is no time of a call: set a "
            f"number of seconds, {LEAST_RUN_LIMIT:g} at least and {MOST_RUN_LIMIT:,} at most"
        )


def loaded(group: str, name: str) -> Any:
    """Object of an entry point. Raises StartError if it, or a package that it imports, is
    missing."""
    point = registered(group)[name]
    owner = _package(point)
    try:
        return point.load()
    except ImportError as error:
        if owner == _OURS and (error.name or "").startswith("toolsvc."):
            raise StartError(_OLD.format(f" and names {point.value}")) from error
        raise StartError(missing(name, error, owner)) from error
    except Exception as error:
        raise StartError(
            f"tool {name!r} of {owner}: {point.value} cannot be imported: {error!r}"
        ) from error


def missing(name: str, error: ImportError, owner: str = _OURS) -> str:
    """Message for a package that the tool `name` lacks. owner: the package of the tool."""
    needs = f"tool {name!r} needs the package {error.name}"
    if owner != _OURS:
        return f"{needs}: install it ({owner} registers the tool)"
    extra = _EXTRAS.get((error.name or "").partition(".")[0], "toolsvc")
    return f"{needs}: pip install 'toolwright[{extra}]'"


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else ""


def validated(model: type[BaseModel], name: str, given: Mapping[str, Any]) -> BaseModel:
    """Options that were given for `name`. Raises StartError, which names a wrong option."""
    known = f"(options of {name}: {', '.join(model.model_fields) or 'none'})"
    if "extra" not in model.model_config:  # pydantic would ignore an unknown name
        for option in given.keys() - model.model_fields.keys():
            raise StartError(f"--set {name}.{option}: there is no such option {known}")
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        faults = "; ".join(_fault(model, name, item) for item in error.errors())
        raise StartError(f"{faults} {known}") from error


def _fault(model: type[BaseModel], name: str, item: ErrorDetails) -> str:
    option = ".".join(map(str, (name, *item["loc"])))
    says = item["msg"].removeprefix("Value error, ")
    field = model.model_fields.get(str(item["loc"][0])) if len(item["loc"]) == 1 else None
    if item["type"] == "missing" and field is not None and field.description:
        says = f"{says}: {field.description}"
    return f"--set {option}: {says}" if item["loc"] else f"{name}: {says}"


def parse_settings(words: list[str]) -> dict[str, dict[str, Any]]:
    """Options by tool, of words `tool.option=value`. Raises StartError for any other word."""
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
