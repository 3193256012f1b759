"""`@tool`: a function as a tool, its parameters as the schema."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, cast, overload

from pydantic import create_model

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
    """Makes a tool of a function: its parameters are the arguments, its docstring the
    description. One text parameter makes a tag tool (`<name>...</name>`), several a JSON call.

    A parameter named `call` gets the whole `Call`. The function itself stays as it is.
    """
    if function is None:
        return lambda inner: tool(inner, **settings)
    function.__toolwright_tool__ = _FunctionTool.of(function, settings)
    return function


def tool_of(value: object) -> Tool | None:
    """The tool that a module-level name stands for, if it stands for one."""
    if isinstance(value, Tool):
        return value
    if isinstance(value, type):
        defined = issubclass(value, Tool) and value is not Tool and bool(value.name)
        return value() if defined else None
    made = getattr(value, "__toolwright_tool__", None)
    return made if isinstance(made, Tool) else None


class _FunctionTool(Tool):
    """A decorated function. `parallel_calls`, unless said otherwise: it has no state of ours."""

    def __init__(self, function: Callable[..., object], wants_call: bool) -> None:
        self._function = function
        self._wants_call = wants_call

    @classmethod
    def of(cls, function: Callable[..., object], settings: Mapping[str, Any]) -> Tool:
        unknown = set(settings) - _SETTINGS
        if unknown:
            raise TypeError(_no_setting(sorted(unknown)))
        fields: Any = {}
        wants_call = False
        hints = inspect.get_annotations(function, eval_str=True)
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name == "call":
                wants_call = True
                continue
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TypeError(f"@tool cannot fill the parameter {parameter} of {function!r}")
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (hints.get(parameter.name, str), default)
        attributes = {
            "name": function.__name__,
            "description": inspect.getdoc(function) or "",
            "arguments": create_model(function.__name__, __config__=STRICT, **fields),
            "parallel_calls": True,
            **settings,
        }
        if len(fields) != 1:
            attributes.setdefault("format", JsonCallFormat())
        kind = type(function.__name__, (cls,), attributes)
        return cast("Tool", kind(function, wants_call))

    def call(self, state: State, call: Call) -> object | Awaitable[object]:
        extra = {"call": call} if self._wants_call else {}
        return self._function(**call.arguments, **extra)

    @property
    def is_coroutine(self) -> bool:
        return inspect.iscoroutinefunction(self._function)


def _no_setting(unknown: Sequence[str]) -> str:
    """The sentence for settings that do not exist, with the nearest of those that do."""
    near = [
        *("run_limit" for name in unknown if "timeout" in name.lower()),
        *(one for name in unknown for one in get_close_matches(name, sorted(_SETTINGS), n=1)),
    ]
    hint = f" (did you mean {near[0]}?)" if near else ""
    settings = ", ".join(sorted(_SETTINGS))
    return f"@tool has no setting {', '.join(unknown)}{hint}: the settings are {settings}"


_SETTINGS = {
    *("name", "description", "usage", "format", "parallel_calls", "run_limit", "media", "keep"),
    *("cpus", "gpus", "memory_bytes"),
}
