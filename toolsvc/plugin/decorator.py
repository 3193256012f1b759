"""`@tool`: a function as a tool, its parameters as the schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, overload

from pydantic import BaseModel, create_model

from toolsvc.plugin.tool import STRICT, State, Tool
from toolsvc.types import ActionFormat, Call, JsonCallFormat
from toolwright.text.truncation import Keep

Function = TypeVar("Function", bound=Callable[..., object])


@overload
def tool(function: Function) -> Function: ...
@overload
def tool(
    *,
    name: str = ...,
    description: str = ...,
    usage: str = ...,
    config: type[BaseModel] = ...,
    format: ActionFormat | None = ...,
    parallel_calls: bool = ...,
    run_limit: float = ...,
    media: bool = ...,
    keep: Keep = ...,
    cpus: float = ...,
    gpus: float = ...,
    memory_bytes: int = ...,
) -> Callable[[Function], Function]: ...


def tool(function: Any = None, **settings: Any) -> Any:
    """Makes a tool of a function: its parameters are the arguments, its docstring the description.
    One text parameter makes a tag tool (`<name>...</name>`), several make a JSON call.

    A parameter named `call` gets the whole `Call`. With `config=MODEL`, a parameter named `config`
    gets the operator's options. The function itself stays as it is. Raises TypeError for an unknown
    setting, or for a parameter that cannot be filled.
    """
    if function is None:
        return lambda inner: tool(inner, **settings)
    function.__toolwright_tool__ = _tool_class(function, settings)
    return function


def tool_of(value: object) -> type[Tool] | Tool | None:
    """Tool of a module-level name: its class, the object if the module made one, or None."""
    if isinstance(value, Tool):
        return value
    kind = getattr(value, "__toolwright_tool__", value)
    if isinstance(kind, type) and issubclass(kind, Tool) and kind.name:
        return kind
    return None


def _tool_class(function: Callable[..., Any], settings: Mapping[str, Any]) -> type[Tool]:
    unknown = set(settings) - _SETTINGS
    if unknown:
        raise TypeError(_no_setting(sorted(unknown)))
    given = dict(settings)
    own = {"Config": given.pop("config")} if "config" in given else {}
    filled = {"call"} | ({"config"} if own else set())
    parameters = inspect.signature(function).parameters
    hints = inspect.get_annotations(function, eval_str=True)
    fields: Any = {}
    for parameter in parameters.values():
        if parameter.name in filled:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"@tool cannot fill the parameter {parameter} of {function!r}")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints.get(parameter.name, str), default)
    wanted = filled & parameters.keys()

    def call(self: Tool, state: State, call: Call) -> Any:
        extra = {"call": call, "config": self.config}
        return function(**call.arguments, **{name: extra[name] for name in wanted})

    async def call_on_loop(self: Tool, state: State, given: Call) -> Any:
        return await call(self, state, given)

    attributes = {
        "name": function.__name__,
        "description": inspect.getdoc(function) or "",
        "arguments": create_model(function.__name__, __config__=STRICT, **fields),
        "parallel_calls": True,  # It has no state of ours.
        "call": call_on_loop if inspect.iscoroutinefunction(function) else call,
        **own,
        **given,
    }
    if len(fields) != 1:
        attributes.setdefault("format", JsonCallFormat())
    return type(function.__name__, (Tool,), attributes)


def _no_setting(unknown: Sequence[str]) -> str:
    """Message for unknown settings, with the nearest known one."""
    near = [
        *("run_limit" for name in unknown if "timeout" in name.lower()),
        *("config" for name in unknown if name.lower() in ("options", "settings")),
        *(one for name in unknown for one in get_close_matches(name, sorted(_SETTINGS), n=1)),
    ]
    hint = f" (did you mean {near[0]}?)" if near else ""
    settings = ", ".join(sorted(_SETTINGS))
    return f"@tool has no setting {', '.join(unknown)}{hint}: the settings are {settings}"


_SETTINGS = {
    *("name", "description", "usage", "config", "format", "parallel_calls", "run_limit", "media"),
    *("keep", "cpus", "gpus", "memory_bytes"),
}
