"""What a tool is, for those who write one: a subclass of `Tool` (or `decorator.tool` for short).

Owns the plugin interface and how a plugin is run: a plain function in a thread, a coroutine on
the loop, both under the call's run limit. Plugins run inside the service's own process and are
trusted by whoever starts it; foreign code belongs into a sandboxed tool (`toolsvc.tools`).

Invariants
- `run` never raises what the plugin raised: that becomes a tool error which the policy sees.
- A thread cannot be stopped. When its limit passes, the call answers TIMEOUT, and later calls of
  a tool without parallel calls wait until the thread has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from toolsvc.actions import InvalidAction
from toolsvc.results import as_result, failure, invalid
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
from toolwright.types import ToolErrorKind

_THREADS = ThreadPoolExecutor(max_workers=64, thread_name_prefix="tool")
_IN_THREADS: set[Future[Any]] = set()
STRICT = ConfigDict(extra="forbid")

State = Any
"""Whatever `open` returns; None for a tool without state."""


class ToolFailed(Exception):
    """For a plugin to raise: the tool failed in a way that the policy should read as it stands."""


class Cancellation:
    """Lets a call be stopped from outside, and tells whether it left work behind."""

    def __init__(self) -> None:
        self.requested = False
        self._stop: Callable[[], object] | None = None
        self._left: Future[Any] | None = None

    def on_request(self, stop: Callable[[], object]) -> None:
        """`stop` is called once cancelling is requested, at once if it was before."""
        self._stop = stop
        if self.requested:
            stop()

    def request(self) -> None:
        if not self.requested:
            self.requested = True
            if self._stop is not None:
                self._stop()

    def leave_behind(self, work: Future[Any]) -> None:
        """The call has answered, its thread has not ended."""
        self._left = work

    def when_idle(self, then: Callable[[], object]) -> None:
        """Calls `then` now, or on the loop once what was left behind has ended."""
        if self._left is None:
            then()
            return
        loop = asyncio.get_running_loop()

        def ended(_: Future[Any]) -> None:
            # The loop may have closed before the thread ended.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(then)

        self._left.add_done_callback(ended)


class Tool:
    """Subclass it and write `call`; add `open` and `close` where a session has a state.

    All three may be plain functions or coroutines.
    """

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    usage: ClassVar[str] = ""
    """For the prompt; "" = made from the format and the description."""
    arguments: ClassVar[type[BaseModel] | None] = None
    """Schema of the arguments; None = what the format says."""
    format: ClassVar[ActionFormat | None] = None
    """How an action looks; None = a tag with the tool's name around one text argument."""
    stop_strings: ClassVar[tuple[str, ...]] = ()
    """Where generation stops; () = the format's closing mark."""
    stateful: ClassVar[bool] = False
    parallel_calls: ClassVar[bool] = False
    run_limit: ClassVar[float] = 30.0
    isolation: str = ""
    """Level of isolation of the foreign code that it runs; "" where it runs none."""

    def open(self, session: SessionInfo) -> State | Awaitable[State]:
        """The state of a new session."""
        return None

    def call(self, state: State, call: Call) -> object | Awaitable[object]:
        """Does the work: text, a `Result`, or something that JSON can say. Raise `InvalidAction`
        for an action that makes no sense, `ToolFailed` for a failure to be told as it stands."""
        raise NotImplementedError(f"tool {self.name!r} has no call method")

    def close(self, state: State) -> Awaitable[None] | None:
        """Called once for every state that `open` returned."""
        return None

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

    async def run(self, state: State, call: Call, cancellation: Cancellation) -> Result:
        """Runs `call` under its limit and turns whatever happens into a result."""
        thread: Future[Any] | None = None
        work: asyncio.Future[Any]
        if _is_coroutine(self.call):
            work = asyncio.ensure_future(cast("Awaitable[Any]", self.call(state, call)))
        else:
            thread = _in_thread(self.call, state, call)
            work = asyncio.wrap_future(thread)
        cancellation.on_request(work.cancel)
        limit = asyncio.timeout(call.run_limit)
        try:
            async with limit:
                value = await work
                # A plain function may hand back a coroutine of its own.
                return as_result(await value if inspect.isawaitable(value) else value)
        except TimeoutError as error:
            if not limit.expired():  # a socket's, say: the plugin's own
                return failure(ToolErrorKind.EXCEPTION, repr(error))
            return failure(
                ToolErrorKind.TIMEOUT, f"{self.name} was stopped after {call.run_limit:g} s"
            )
        except InvalidAction as error:
            return invalid(str(error))
        except ToolFailed as error:
            return failure(ToolErrorKind.EXCEPTION, str(error))
        except asyncio.CancelledError:
            if not cancellation.requested:
                raise
            return failure(ToolErrorKind.CANCELLED, f"{self.name} was cancelled")
        except Exception as error:  # noqa: BLE001 - the plugin's own fault, told to the policy
            return failure(ToolErrorKind.EXCEPTION, f"{type(error).__name__}: {error}")
        finally:
            if thread is not None and not thread.done():
                cancellation.leave_behind(thread)

    def describe(self) -> Descriptor:
        """What the engine is told."""
        form = self._format()
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
        )

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as `call` gets them. InvalidAction where they do not fit the schema."""
        if self.arguments is None and len(arguments) == 1:
            # The common case, one text between tags, without the cost of a validation.
            ((name, value),) = arguments.items()
            form = self._format()
            wanted = form.argument if isinstance(form, TagFormat) else "action"
            if name == wanted and isinstance(value, str) and not isinstance(form, JsonCallFormat):
                return {name: value}
        model = self._arguments()
        try:
            return dict(model.model_validate(dict(arguments)))
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}"
                for item in error.errors()
            )
            raise InvalidAction(f"{self.name}: {faults}") from error

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
        form = self._format()
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


def _in_thread(method: Callable[..., Any], *arguments: Any) -> Future[Any]:
    work = _THREADS.submit(method, *arguments)
    _IN_THREADS.add(work)
    work.add_done_callback(_IN_THREADS.discard)
    return work


def plugins_in_threads() -> int:
    """How many plugin functions have not returned; the interpreter waits for them at its end."""
    return len(_IN_THREADS)


def _is_coroutine(method: Callable[..., Any]) -> bool:
    owner = getattr(method, "__self__", None)
    return inspect.iscoroutinefunction(method) or getattr(owner, "is_coroutine", False)


async def _in_its_place(method: Callable[..., Any], *arguments: Any) -> Any:
    """A coroutine function on the loop, anything else in a thread."""
    if _is_coroutine(method):
        return await method(*arguments)
    result = await asyncio.wrap_future(_in_thread(method, *arguments))
    return await result if inspect.isawaitable(result) else result


async def open_state(tool: Tool, session: SessionInfo) -> State:
    """`tool.open` wherever it has to run."""
    if type(tool).open is Tool.open:
        return None
    return await _in_its_place(tool.open, session)


async def close_state(tool: Tool, state: State) -> None:
    """`tool.close` wherever it has to run."""
    if type(tool).close is not Tool.close:
        await _in_its_place(tool.close, state)


def _plain_schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    schema.pop("title", None)
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return schema


def _usage(tool: Tool, form: ActionFormat) -> str:
    if isinstance(form, TagFormat):
        example = f"{form.open} {form.argument} {form.close}"
    elif isinstance(form, JsonCallFormat):
        names = ", ".join(f'"{name}": ...' for name in tool._arguments().model_fields)
        example = f'{form.open}{{"name": "{tool.name}", "arguments": {{{names}}}}}{form.close}'
    else:
        return tool.description
    return f"{example}\n{tool.description}".strip()
