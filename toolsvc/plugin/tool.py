"""What a tool is, for those who write one: a subclass of `Tool` (or `decorator.tool` for short).

Owns the plugin interface and what the engine is told of a tool; how a plugin is run is `running`.
Plugins run inside the service's own process and are trusted by whoever starts it; foreign code
belongs into a sandboxed tool (`toolsvc.tools`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from toolsvc.plugin.actions import InvalidAction, parse_arguments
from toolsvc.plugin.cancellation import Cancellation
from toolsvc.plugin.running import is_coroutine, run_call
from toolsvc.types import (
    ActionFormat,
    Call,
    Descriptor,
    JsonCallFormat,
    RawFormat,
    Result,
    SessionInfo,
    TagFormat,
)
from toolwright.text.truncation import Keep

__all__ = ["STRICT", "Cancellation", "State", "Tool"]

STRICT = ConfigDict(extra="forbid")

LEAST_RUN_LIMIT = 0.001
"""Shortest time of a call that can be set, in seconds."""
MOST_RUN_LIMIT = 31_536_000
"""Longest time of a call that a tool can set, in seconds: a year."""

State = Any
"""Whatever `open` returns; None for a tool without state."""


class Tool:
    """Subclass it and write `call`; add `open` and `close` where a session has a state.

    All three may be plain functions or coroutines.
    """

    name: str = ""
    description: str = ""
    usage: str = ""
    """For the prompt; "" = made from the format and the description."""
    arguments: type[BaseModel] | None = None
    """Schema of the arguments; None = what the format says."""
    format: ActionFormat | None = None
    """How an action looks; None = a tag with the tool's name around one text argument."""
    stop_strings: tuple[str, ...] = ()
    """Where generation stops; () = the format's closing mark."""
    stateful: bool = False
    parallel_calls: bool = False
    run_limit: float = 30.0
    """Time of a call whose caller sets none, in seconds, from `LEAST_RUN_LIMIT` to
    `MOST_RUN_LIMIT`."""
    media: bool = False
    """Observations may hold images, videos or sound."""
    keep: Keep = "middle"
    """What stays of an observation that is too long; middle = its beginning and its end."""
    isolation: str = ""
    """Level of isolation of the foreign code that it runs; "" where it runs none."""
    fork_replays: bool = False
    """`fork` runs the session's calls again: what they did outside of it is done again."""
    cpus: float = 0.0
    """Cores that a session keeps busy; with `gpus` and `memory_bytes` what a cluster sets aside for
    it (`toolsvc.fleet.ray`). Nothing holds the tool to it."""
    gpus: float = 0.0
    memory_bytes: int = 0
    callable: bool = True
    """False for one that only gives sessions their own tools: nobody sees it or calls it."""

    def open(self, session: SessionInfo) -> State | Awaitable[State]:
        """The state of a new session."""
        return None

    def call(self, state: State, call: Call) -> object | Awaitable[object]:
        """Does the work: text, a `Result`, or something that JSON can say. Raise `InvalidAction`
        for an action that makes no sense, `ToolFailed` for a failure to be told as it stands."""
        raise NotImplementedError(f"tool {self.name!r} has no call method")

    def accepts(self, action: str) -> bool:
        """Whether the action is meant for this tool; asked where its format is raw and the session
        has other tools. Unless said otherwise: it holds one of the tool's stops."""
        return not self.stop_strings or any(stop in action for stop in self.stop_strings)

    def close(self, state: State) -> Awaitable[None] | None:
        """Called once for every state that `open` returned."""
        return None

    def session_tools(self, state: State) -> Sequence[Tool]:
        """Tools that this session alone has. Asked when the session is open and after each call of
        this tool; what was there stays, what is new is callable from the next turn on. Their names
        must not be in `SessionInfo.names`."""
        return ()

    def fork(self, state: State, session: SessionInfo) -> State | Awaitable[State]:
        """The state of a second session that goes on from where the first one's `state` is, and
        shares nothing with it. Overridden by tools whose calls change a state; they may say
        `Refused` where this state cannot be had again. No call of a tool without parallel calls
        runs meanwhile."""
        return self.open(session)

    def forks(self) -> bool:
        """A session with this tool can be forked: it keeps nothing between calls, or says how."""
        if type(self).fork is not Tool.fork:
            return True
        return not self.stateful and type(self).session_tools is Tool.session_tools

    # What follows is for tools that own processes; a plugin has no need of it.

    async def start(self) -> None:
        """Once, before the service listens. StartError if the tool cannot work here."""

    async def stop(self) -> None:
        """Once, after the last session was closed."""

    def ready(self, state: State) -> bool:
        """False where `prepare` has to be awaited before a call."""
        return True

    async def prepare(self, state: State) -> None:
        """Gets what a call needs before its run limit begins. Refused if it cannot be had."""

    def lost(self, state: State) -> str | None:
        """Why the state is gone, or None."""
        return None

    def figures(self) -> Mapping[str, float]:
        """How full it is, for the metrics page: numbers by name; one that counts up ends in
        `_total`."""
        return {}

    async def run(self, state: State, call: Call, cancellation: Cancellation) -> Result:
        """Runs `call` under its limit and turns whatever happens into a result."""
        return await run_call(self.call, self._on_loop, state, call, cancellation, self.name)

    def describe(self) -> Descriptor:
        """What the engine is told."""
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
            # A plain function runs in a thread, which nothing stops.
            cancel=self._on_loop or type(self).run is not Tool.run,
            fork=self.forks(),
            fork_replays=self.fork_replays and self.forks(),
        )

    def parse(self, action: str, descriptor: Descriptor) -> dict[str, Any]:
        """Arguments as the action has them, where the caller did not know them. InvalidAction."""
        return parse_arguments(action, descriptor)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as `call` gets them. InvalidAction where they do not fit the schema."""
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

    @cached_property
    def _on_loop(self) -> bool:
        return is_coroutine(self.call)

    @cached_property
    def _only_text(self) -> str | None:
        """The one argument, where it is any text: no model has to look at it."""
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
    """What a prompt says of a tool that is called in JSON. `arguments`: their names."""
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
