"""What a tool is, for those who write one: a subclass of `Tool` (or `decorator.tool` for short).

Owns the plugin interface and the description that the engine gets. `executors` run its calls.
The tools of a file run inside the service and are trusted by its operator. Foreign code runs in a
sandboxed tool (`toolsvc.tools`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from toolsvc.plugin.actions import InvalidAction, parse_arguments
from toolsvc.plugin.executors import Cancellation, InService, LiveState, OutOfProcess
from toolsvc.types import (
    ActionFormat,
    Call,
    Descriptor,
    JsonCallFormat,
    RawFormat,
    SessionInfo,
    TagFormat,
)
from toolwright.text.truncation import Keep

__all__ = ["STRICT", "Cancellation", "InService", "LiveState", "OutOfProcess", "State", "Tool"]

STRICT = ConfigDict(extra="forbid")

LEAST_RUN_LIMIT = 0.001
"""Shortest time of a call that can be set, in seconds."""
MOST_RUN_LIMIT = 31_536_000
"""Longest time of a call that a tool can set, in seconds: a year."""

State = Any
"""Whatever `open` returns; None for a tool without state."""

_RENAMED = {
    "check": "`make_arguments`, which returns what `call` gets, and `check_arguments`, which "
    "returns nothing",
    "ready": "`ready` of a state that is a `LiveState`",
    "prepare": "`prepare` of a state that is a `LiveState`",
    "lost": "`lost` of a state that is a `LiveState`",
}
"""Names of earlier versions, and what to write now."""


class NoConfig(BaseModel):
    """Options of a tool that has none."""

    model_config = STRICT


class Tool:
    """Subclass it and write `call`; add `open` and `close` where a session has a state. All three
    may be plain functions or coroutines.

    A tool with options sets `Config`. The service makes the tool once, with a checked `Config`, and
    sets it by `--set NAME.OPTION=VALUE`. A constructor gets the arguments that it names: `config`,
    and `sandbox`, the `SandboxConfig` for foreign code. It raises `StartError` if the tool cannot
    work so.
    """

    Config: ClassVar[type[BaseModel]] = NoConfig
    """Options of an operator; descriptions of the fields are their help."""
    config: Any = None
    """The `Config` that the operator set."""
    executor: ClassVar[type[InService] | type[OutOfProcess]] = InService
    """Executor of calls. `OutOfProcess` calls `run(state, call, cancellation)`, not `call`."""
    registered: bool = False
    """Whether a package registered its name. Such a tool shares no state with other tools."""

    name: str = ""
    description: str = ""
    usage: str = ""
    """For the prompt; "" = made from the format and the description."""
    arguments: type[BaseModel] | None = None
    """Schema of the arguments; None = what the format says."""
    format: ActionFormat | None = None
    """Form of an action; None = a tag with the tool's name around one text argument."""
    stop_strings: tuple[str, ...] = ()
    """Texts at which generation stops; () = the format's closing mark."""
    stateful: bool = False
    parallel_calls: bool = False
    run_limit: float = 30.0
    """Time of a call whose caller sets none, in seconds, from `LEAST_RUN_LIMIT` to
    `MOST_RUN_LIMIT`."""
    media: bool = False
    """Observations may hold images, videos or sound."""
    keep: Keep = "middle"
    """Part of an observation that stays if it is too long; middle = its beginning and its end."""
    isolation: str = ""
    """Level of isolation of the foreign code that it runs; "" = it runs no foreign code."""
    fork_replays: bool = False
    """Whether `fork` runs the session's calls again, with their effects outside of the session."""
    cpus: float = 0.0
    """Cores that a cluster reserves for a session, with `gpus` and `memory_bytes`
    (`toolsvc.fleet.ray`). They do not limit the tool."""
    gpus: float = 0.0
    memory_bytes: int = 0
    callable: bool = True
    """False for a tool that only gives sessions their own tools; it is not listed or called."""

    def __init__(self, config: Any = None) -> None:
        """config: a `Config`; None = all defaults."""
        if config is not None:
            self.config = config
        elif self.Config is not NoConfig:
            self.config = self.Config()

    def __init_subclass__(cls, **more: Any) -> None:
        """Raises TypeError for a method or attribute of an earlier version, with its new name, and
        for a `Config` or an `executor` of another kind."""
        super().__init_subclass__(**more)
        own, whose = vars(cls), f"tool class {cls.__name__} has"
        for name, now in _RENAMED.items():
            if name in own:
                raise TypeError(f"{whose} `{name}`: write {now}")
        if cls.executor not in (InService, OutOfProcess):
            raise TypeError(f"{whose} `executor`, which is InService or OutOfProcess: rename yours")
        if "run" in own and cls.executor is InService:
            raise TypeError(f"{whose} `run`: add `executor = OutOfProcess`")
        if not (isinstance(cls.Config, type) and issubclass(cls.Config, BaseModel)):
            raise TypeError(f"{whose} `Config`, which is a pydantic model of its options")

    def open(self, session: SessionInfo) -> State | Awaitable[State]:
        """State of a new session."""
        return None

    def call(self, state: State, call: Call) -> object | Awaitable[object]:
        """Does the work and returns text, a `Result`, or any value that JSON can hold. Raises
        InvalidAction for an action that makes no sense, and ToolFailed for a failure whose message
        the policy reads."""
        raise NotImplementedError(f"tool {self.name!r} has no call method")

    def accepts(self, action: str) -> bool:
        """Whether the action is meant for this tool, if its format is raw and the session has other
        tools. By default: whether it holds one of the tool's stops."""
        return not self.stop_strings or any(stop in action for stop in self.stop_strings)

    def close(self, state: State) -> Awaitable[None] | None:
        """Ends a state. Called once for every state that `open` returned."""
        return None

    def session_tools(self, state: State) -> Sequence[Tool]:
        """Tools that this session alone has. Called when the session is open and after each call of
        this tool. Earlier tools stay; new ones can be called from the next turn on. Their names
        must not be in `SessionInfo.names`."""
        return ()

    def fork(self, state: State, session: SessionInfo) -> State | Awaitable[State]:
        """State of a second session that continues from `state` and shares nothing with it. For
        tools whose calls change a state. Raises Refused if this state cannot be had again. No call
        of a tool without parallel calls runs meanwhile."""
        return self.open(session)

    def forks(self) -> bool:
        """Whether a session with this tool can be forked: it keeps no state, or has `fork`."""
        if type(self).fork is not Tool.fork:
            return True
        return not self.stateful and type(self).session_tools is Tool.session_tools

    async def start(self) -> None:
        """Runs once, before the service listens. Raises StartError if the tool cannot work here."""

    async def stop(self) -> None:
        """Runs once, after the last session was closed."""

    def figures(self) -> Mapping[str, float]:
        """Numbers by name for the metrics page; the name of a counter ends in `_total`."""
        return {}

    def describe(self) -> Descriptor:
        """What an engine needs to know of the tool."""
        form = self._format
        closing = (form.close,) if isinstance(form, TagFormat | JsonCallFormat) else ()
        return Descriptor(
            name=self.name,
            description=self.description,
            usage=self.usage or _usage(self, form),
            arguments_schema=_plain_schema(self._arguments()),
            stop_strings=self.stop_strings or closing,
            format=form,
            stateful=self.stateful,
            parallel_calls=self.parallel_calls,
            run_limit=self.run_limit,
            media=self.media,
            cancel=type(self).executor(self).stops,
            fork=self.forks(),
            fork_replays=self.fork_replays and self.forks(),
        )

    def parse(self, action: str, descriptor: Descriptor) -> dict[str, Any]:
        """Arguments as the action has them, for a caller that did not read them. Raises
        InvalidAction."""
        return parse_arguments(action, descriptor)

    def make_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as `call` gets them: they fit the schema and have its defaults. Raises
        InvalidAction."""
        name = self._only_text
        if name is not None and len(arguments) == 1 and isinstance(arguments.get(name), str):
            return {name: arguments[name]}
        model = self._arguments()
        try:
            return dict(model.model_validate(dict(arguments)))
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}"
                for item in error.errors()
            )
            raise InvalidAction(f"{self.name}: {faults}") from error

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Rules beyond the schema, for arguments that `make_arguments` made. Raises InvalidAction,
        and changes nothing."""

    @cached_property
    def _only_text(self) -> str | None:
        """Name of the only argument if it can be any text, which needs no model."""
        form = self._format
        if self.arguments is not None or isinstance(form, JsonCallFormat):
            return None
        return form.argument if isinstance(form, TagFormat) else "action"

    @cached_property
    def _format(self) -> ActionFormat:
        if self.format is not None:
            return self.format
        fields = list(self.arguments.model_fields) if self.arguments is not None else ["text"]
        if len(fields) == 1:
            return TagFormat(open=f"<{self.name}>", close=f"</{self.name}>", argument=fields[0])
        return JsonCallFormat()

    def _arguments(self) -> type[BaseModel]:
        if self.arguments is not None:
            return self.arguments
        form = self._format
        if isinstance(form, JsonCallFormat):
            return _AnyArguments
        return _text_model("action" if isinstance(form, RawFormat) else form.argument)


class _AnyArguments(BaseModel):
    model_config = ConfigDict(extra="allow")


_TEXT_MODELS: dict[str, type[BaseModel]] = {}


def _text_model(name: str) -> type[BaseModel]:
    if name not in _TEXT_MODELS:
        fields: Any = {name: (str, ...)}
        _TEXT_MODELS[name] = create_model("Arguments", __config__=STRICT, **fields)
    return _TEXT_MODELS[name]


def _plain_schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    schema.pop("title", None)
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return schema


def json_call_usage(name: str, description: str, arguments: Iterable[str]) -> str:
    """Usage of a tool that is called in JSON, for a prompt. arguments: their names."""
    form = JsonCallFormat()
    names = ", ".join(f'"{argument}": ...' for argument in arguments)
    example = f'{form.open}{{"name": "{name}", "arguments": {{{names}}}}}{form.close}'
    return f"{example}\n{description}".strip()


def _usage(tool: Tool, form: ActionFormat) -> str:
    if isinstance(form, JsonCallFormat):
        return json_call_usage(tool.name, tool.description, tool._arguments().model_fields)
    if isinstance(form, TagFormat):
        return f"{form.open} {form.argument} {form.close}\n{tool.description}".strip()
    return tool.description
