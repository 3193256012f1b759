"""What /v1/completions and /v1/chat/completions stream: bytes to payloads to deltas. Pure.

Invariants
- A stream takes bounded memory: a line and an event have at most `MAX_EVENT_BYTES`.
- The search for the end of a line is linear, however the bytes come.
- A payload that is no chunk of the API is a WireError, the server's fault. Nothing is guessed.
- Keys that are not named here are ignored: every server adds its own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from engine.sampler.wire.events import WireError

MAX_EVENT_BYTES = 4 * 2**20
MOST_CALLS = 256
"""Tool calls of one message."""
_SHOWN = 300
"""Bytes of a payload in a sentence."""


class SseReader:
    """Bytes of a server-sent event stream to payloads; comments and other fields are dropped."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._event: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads of the events that `data` completes, `[DONE]` included.

        WireError when a line or an event grows beyond the limit.
        """
        payloads: list[bytes] = []
        searched = len(self._rest)
        self._rest += data
        start = 0
        while (end := self._rest.find(b"\n", max(start, searched))) >= 0:
            self._line(bytes(self._rest[start:end]).removesuffix(b"\r"), payloads)
            start = end + 1
        del self._rest[:start]
        self._check(len(self._rest))
        return payloads

    def end(self) -> list[bytes]:
        """The payload that the stream's end completes: some servers leave the last line open."""
        payloads: list[bytes] = []
        self._line(bytes(self._rest), payloads)
        self._line(b"", payloads)
        self._rest.clear()
        return payloads

    def _line(self, line: bytes, payloads: list[bytes]) -> None:
        self._check(len(line))
        if line.startswith(b"data:"):
            part = line[5:].strip()
            self._size += len(part)
            self._check(self._size)
            self._event.append(part)
        elif not line and self._event:
            payloads.append(b"\n".join(self._event))
            self._event, self._size = [], 0

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise WireError(f"an event of more than {self._limit} bytes")


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    index: int | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct, gc=False):
    text: str | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    matched_stop: int | str | msgspec.UnsetType | None = msgspec.UNSET
    stop_reason: int | str | msgspec.UnsetType | None = msgspec.UNSET


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """Tokens as the server counts, and bills, them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None

    @property
    def cached_tokens(self) -> int | None:
        return self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None


class _Payload(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Usage | None = None
    model: str | None = None
    error: Any = None


class CallPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A piece of one of a message's tool calls."""

    index: int
    name: str
    arguments: str


class Hint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the server says that it stopped at: a stop text, or None for the end of the turn."""

    text: str | None


class Delta(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one event added. thought: bytes of reasoning that are no part of the text. finish: the
    API's word, "" before the end. hint: None where the server does not tell."""

    text: str = ""
    thought: int = 0
    calls: tuple[CallPart, ...] = ()
    finish: str = ""
    hint: Hint | None = None
    usage: Usage | None = None
    model: str = ""

    @property
    def brings(self) -> bool:
        """Something that counts as written; a call without a name and arguments does not."""
        return bool(
            self.text or self.thought or any(part.name or part.arguments for part in self.calls)
        )


_DECODE = msgspec.json.Decoder(_Payload).decode


def read_delta(payload: bytes) -> Delta:
    """WireError for an error event, and for what is no chunk of the API. An event without choices
    is one that tells of usage, or nothing."""
    try:
        found = _DECODE(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"no event of the API ({error}): {payload[:_SHOWN]!r}") from error
    if found.error is not None:
        raise error_event(found.error)
    if found.choices is None and found.usage is None:
        raise WireError(f"an event has neither choices nor usage: {payload[:_SHOWN]!r}")
    if not found.choices:
        return Delta(usage=found.usage, model=found.model or "")
    choice = found.choices[0]
    said = choice.delta or choice.message or _Delta()
    thought = said.reasoning_content or said.reasoning or ""
    return Delta(
        text=(choice.text or "") + (said.content or ""),
        thought=len(thought.encode()),
        calls=_calls(said.tool_calls or []),
        finish=choice.finish_reason or "",
        hint=_hint(choice),
        usage=found.usage,
        model=found.model or "",
    )


def _calls(parts: list[_ToolCall]) -> tuple[CallPart, ...]:
    found = []
    for number, part in enumerate(parts):
        index = number if part.index is None else part.index
        if not 0 <= index < MOST_CALLS:
            raise WireError(f"a tool call has index {index}; {MOST_CALLS} are read at most")
        function = part.function or _Function()
        found.append(
            CallPart(index=index, name=function.name or "", arguments=function.arguments or "")
        )
    return tuple(found)


def _hint(choice: _Choice) -> Hint | None:
    """SGLang's `matched_stop`, else vLLM's `stop_reason`; a number or null is a token's."""
    if not choice.finish_reason:
        return None
    for told in (choice.matched_stop, choice.stop_reason):
        if told is not msgspec.UNSET:
            return Hint(text=told if isinstance(told, str) else None)
    return None


def error_event(error: Any) -> WireError:
    """An error inside a response of status 200; retryable unless it says that the request is at
    fault."""
    if not isinstance(error, dict):
        return WireError(str(error)[:1000])
    code = error.get("code")
    refused = isinstance(code, int) and 400 <= code < 500 and code not in (408, 425, 429)
    return WireError(str(error.get("message", error))[:1000], retryable=not refused)
