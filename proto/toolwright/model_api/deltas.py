"""Answers of /completions and /chat/completions, streamed or whole: bytes to deltas. Pure.

Invariants
- A payload that is not a chunk of the API raises WireError, the server's fault.
- Text, calls and finish are read strictly. Usage is only counted, so usage of an unknown shape is
  dropped and never costs the answer that came with it.
- Keys that are not named here are ignored: every server adds its own.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from toolwright.model_api.errors import WireError
from toolwright.model_api.event_stream import StreamEvent

MOST_SAID = 300
"""Characters of a server's message in a sentence, and bytes of a payload."""
_RETRYABLE_CODES = (408, 409, 425, 429)
_THOUGHT_PARTS = ("thinking", "reasoning", "reasoning_text", "redacted_thinking")
_MOST_NESTED = 16
"""Levels of parts inside parts; Mistral's have two."""
_MOST_ENTRIES = 4
"""Entries of a refusal whose parameters are named."""
_MOST_TOKENS = 2**53


class Ending(StrEnum):
    """Meaning of a finish word."""

    STOP = "stop"
    """The model ended its answer, or a stop text did."""
    LENGTH = "length"
    """The answer is cut off at a limit."""
    FILTERED = "filtered"
    """The server held back the rest."""
    FAILED = "failed"
    """The server broke off: the answer is not whole."""
    UNKNOWN = "unknown"
    """A word that is not in the table: the answer ended, and counts as it is."""


_ENDINGS = {
    Ending.STOP: (
        "stop", "tool_calls", "tool_call", "tool_use", "function_call", "eos_token", "eos",
        "stop_sequence", "end_turn", "complete", "completed", "finished", "done", "end",
    ),
    Ending.LENGTH: (
        "length", "max_tokens", "max_length", "model_length", "max_output_tokens",
        "max_completion_tokens", "token_limit", "model_context_window_exceeded",
    ),
    Ending.FILTERED: (
        "content_filter", "content_filtered", "safety", "refusal", "recitation", "blocklist",
        "prohibited_content", "spii", "sensitive", "error_toxic",
    ),
    Ending.FAILED: (
        "error", "abort", "aborted", "cancelled", "canceled", "insufficient_system_resource",
        "network_error", "unavailable", "engine_overloaded", "timeout", "time_limit",
        "malformed_function_call",
    ),
}  # fmt: skip
_ENDING_OF = {word: ending for ending, words in _ENDINGS.items() for word in words}


def ending_of(word: str) -> Ending:
    """The meaning of a finish word of any server, in any case of letters."""
    return _ENDING_OF.get(word.strip().lower(), Ending.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the server counts, and bills, them; None if the server does not report them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPart:
    """A piece of one of a message's tool calls. index: None if the server sends no index."""

    index: int | None
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """Where the server says it stopped: at a stop text, or at the end of the turn (None)."""

    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """Content of one event."""

    text: str = ""
    thought: int = 0
    """Bytes of reasoning that are not part of the text."""
    calls: tuple[CallPart, ...] = ()
    finish: str = ""
    """The server's word for the end; "" before it."""
    hint: Hint | None = None
    """Place of the stop; None if the server does not report it."""
    usage: Usage | None = None
    model: str = ""

    @property
    def brings(self) -> bool:
        """Something that counts as written; a call without a name and arguments does not."""
        return bool(
            self.text or self.thought or any(part.name or part.arguments for part in self.calls)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole chat completion. cut: it ended at a limit of tokens."""

    text: str
    cut: bool
    usage: Usage


class Halves:
    """Joins the halves of a surrogate pair that a server's escapes put into two events."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-16-le")("replace")
        self._held = False

    def join(self, text: str, *, last: bool = False) -> str:
        """`text` with what was held before it. A half at its end is held; a half that nothing
        completes becomes U+FFFD."""
        if not (self._held or (text and _has_half(text))):
            return text
        joined = self._decoder.decode(text.encode("utf-16-le", "surrogatepass"), final=last)
        self._held = self._decoder.getstate()[0] != b""
        return joined


def _has_half(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def joined(text: str) -> str:
    """A whole text without halves of surrogate pairs."""
    return Halves().join(text, last=True)


def read_event(event: StreamEvent) -> Delta:
    """One event of a stream.

    An event that brings neither choices nor usage is empty if it says that it is a chunk or a
    keep-alive. Raises WireError for an error, and for a payload that is not a chunk of the API.
    """
    if event.is_error:
        raise _error_of(_loaded_or_text(event.data))
    found = _loaded(event.data)
    if _is_empty_chunk(found):
        return Delta()
    return _delta(found, event.data)


def read_answer(body: bytes) -> Answer:
    """A whole chat completion. Raises WireError for anything else."""
    found = _loaded(body)
    delta = _delta(found, body)
    if not found.get("choices"):
        raise WireError(f"no choices: {body[:MOST_SAID]!r}")
    return Answer(
        text=joined(delta.text),
        cut=ending_of(delta.finish) is Ending.LENGTH,
        usage=delta.usage or Usage(),
    )


def read_usage(found: Any) -> Usage | None:
    """Counts under the names that servers use; None if the server sends no counts."""
    if not isinstance(found, Mapping):
        return None
    details = found.get("prompt_tokens_details") or found.get("input_tokens_details")
    cached = details if isinstance(details, Mapping) else {}
    usage = Usage(
        prompt_tokens=_count(found, "prompt_tokens", "input_tokens"),
        completion_tokens=_count(found, "completion_tokens", "output_tokens"),
        cached_tokens=_count(
            {**found, **cached}, "cached_tokens", "prompt_cache_hit_tokens",
            "cache_read_input_tokens",
        ),
    )  # fmt: skip
    return None if usage == Usage() else usage


def said(body: bytes) -> str:
    """The message in a refusal's body, in one line of at most `MOST_SAID` characters. The parameter
    that the server names beside its message is part of it. Of pydantic's entries, the first and
    those with the same message count together: the others are about something else."""
    found = _loaded_or_text(body)
    if isinstance(found, list) and found:
        found = found[0]
    if isinstance(found, Mapping):
        found = found.get("error") or found.get("message") or found.get("detail") or found
    entries = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    if isinstance(found, list) and found:
        found = found[0]
    named = ""
    if isinstance(found, Mapping):
        message = found.get("message") or found.get("msg")
        alike = [one for one in entries[:_MOST_ENTRIES] if one.get("msg") == message]
        line = _line(message or found)
        names = dict.fromkeys(filter(None, map(_named_parameter, alike or [found])))
        if shown := [f"'{name}'" for name in names if not _is_quoted(name, line)]:
            named = f" ({_kind(found)}: {', '.join(shown)})"
    else:
        line = _line(found)
    return f"{line[: max(0, MOST_SAID - len(named))]}{named}"[:MOST_SAID]


def _is_quoted(name: str, line: str) -> bool:
    return any(f"{mark}{name}{mark}" in line for mark in ("'", '"', "`"))


def _line(found: Any) -> str:
    return " ".join(_shown(found)[: 4 * MOST_SAID].split())


def _shown(found: Any) -> str:
    try:
        return str(found)
    except RecursionError:  # JSON may be nested deeper than this process may print
        return "an answer that is nested too deeply to be shown"


def _named_parameter(error: Mapping[str, Any]) -> str:
    """OpenAI's `param`, or pydantic's `loc` as a dotted path inside the body; "" without either."""
    parameter, loc = error.get("param"), error.get("loc")
    if parameter is None and isinstance(loc, list) and len(loc) < _MOST_NESTED:
        path = loc[1:] if loc[:1] == ["body"] else loc
        parameter = ".".join(str(one) for one in path if isinstance(one, str | int))
    if not isinstance(parameter, str) or not 0 < len(parameter) < 60 or "'" in parameter:
        return ""
    return parameter


def _kind(error: Mapping[str, Any]) -> str:
    code = error.get("code") or error.get("type")
    return code.replace("_", " ") if isinstance(code, str) and len(code) < 60 else "parameter"


def _loaded(payload: bytes) -> dict[str, Any]:
    """The JSON object of a payload. Raises WireError for other payloads."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise WireError(f"no event of the API ({error}): {payload[:MOST_SAID]!r}") from error
    if isinstance(found, list) and found and isinstance(found[0], dict) and "error" in found[0]:
        found = found[0]
    if not isinstance(found, dict):
        raise WireError(f"no event of the API (not an object): {payload[:MOST_SAID]!r}")
    return found


def _loaded_or_text(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return payload[: 4 * MOST_SAID].decode(errors="replace")


def _is_empty_chunk(found: Mapping[str, Any]) -> bool:
    if any(found.get(key) for key in ("choices", "usage", "error")):
        return False
    kind = found.get("type") or found.get("object")
    return isinstance(kind, str) and (
        kind in ("ping", "keepalive", "heartbeat") or kind.endswith(".chunk")
    )


def _delta(found: dict[str, Any], payload: bytes) -> Delta:
    if found.get("error"):
        raise _error_of(found["error"], found)
    choices, counts = found.get("choices"), found.get("usage")
    if counts is None and isinstance(other := found.get("x_groq"), Mapping):
        counts = other.get("usage")
    if choices is None and counts is None:
        if found.get("object") == "error" or found.get("detail") or found.get("message"):
            raise _error_of(found)
        raise WireError(f"an event has neither choices nor usage: {payload[:MOST_SAID]!r}")
    model = found.get("model")
    usage, model = read_usage(counts), model if isinstance(model, str) else ""
    if not choices:
        if choices not in (None, []):
            raise WireError(f"choices are not a list: {payload[:MOST_SAID]!r}")
        return Delta(usage=usage, model=model)
    if not isinstance(choices, list) or not isinstance(choices[0], Mapping):
        raise WireError(f"choices are not a list of objects: {payload[:MOST_SAID]!r}")
    choice = choices[0]
    message = choice.get("delta")
    if message is None:
        message = choice.get("message") or {}
    if not isinstance(message, Mapping):
        raise WireError(f"a delta is not an object: {payload[:MOST_SAID]!r}")
    plain = _text(choice.get("text"), payload)
    content, thought = _content(message.get("content"), payload)
    for key in ("reasoning_content", "reasoning"):
        if isinstance(reasoning := message.get(key), str) and reasoning:
            thought += _size(reasoning)
            break
    return Delta(
        text=plain + content,
        thought=thought,
        calls=_calls(message, payload),
        finish=_finish(choice.get("finish_reason")),
        hint=_hint(choice),
        usage=usage,
        model=model,
    )


def _text(found: Any, payload: bytes) -> str:
    if found is None:
        return ""
    if not isinstance(found, str):
        raise WireError(f"a text is not a string: {payload[:MOST_SAID]!r}")
    return found


def _content(found: Any, payload: bytes) -> tuple[str, int]:
    """(text, bytes of thought) of a string or of parts."""
    if found is None or isinstance(found, str):
        return found or "", 0
    parts = [found] if isinstance(found, Mapping) else found
    if not isinstance(parts, list):
        raise WireError(f"content is neither text nor parts: {payload[:MOST_SAID]!r}")
    texts, thought = [], 0
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and part.get("type") in _THOUGHT_PARTS:
            thought += sum(_size(text) for text in _strings(part))
        elif isinstance(part, Mapping):
            text = part.get("text")
            if isinstance(text, Mapping):
                text = text.get("value")
            texts.append(text if isinstance(text, str) else "")
        else:
            raise WireError(f"a part of content is not an object: {payload[:MOST_SAID]!r}")
    return "".join(texts), thought


def _strings(part: Any, level: int = 0) -> Iterator[str]:
    """Texts of a thought's parts, without the words that name its kind."""
    if isinstance(part, str):
        yield part
    elif level < _MOST_NESTED and isinstance(part, list):
        for one in part:
            yield from _strings(one, level + 1)
    elif level < _MOST_NESTED and isinstance(part, Mapping):
        for key in ("text", "thinking", "reasoning", "data"):
            yield from _strings(part.get(key), level + 1)


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


def _calls(message: Mapping[str, Any], payload: bytes) -> tuple[CallPart, ...]:
    found = message.get("tool_calls")
    parts = found if isinstance(found, list) else [found] if found else []
    if isinstance(old := message.get("function_call"), Mapping) and not parts:
        parts = [{"index": 0, "function": old}]
    return tuple(_call(part, payload) for part in parts if part is not None)


def _call(part: Any, payload: bytes) -> CallPart:
    if not isinstance(part, Mapping):
        raise WireError(f"a tool call is not an object: {payload[:MOST_SAID]!r}")
    function = part.get("function") or {}
    if not isinstance(function, Mapping):
        raise WireError(f"a tool call's function is not an object: {payload[:MOST_SAID]!r}")
    index, own = _count(part, "index"), part.get("id")
    if index is None and part.get("index") is not None:
        raise WireError(f"a tool call has index {str(part['index'])[:40]}")
    arguments = function.get("arguments")
    if isinstance(arguments, dict | list):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return CallPart(
        index=index,
        id=str(own)[:200] if isinstance(own, str | int) else "",
        name=_text(function.get("name"), payload),
        arguments=_text(arguments, payload),
    )


def _finish(found: Any) -> str:
    if isinstance(found, Mapping):
        found = found.get("type")
    return found if isinstance(found, str) and found.lower() not in ("null", "none") else ""


def _hint(choice: Mapping[str, Any]) -> Hint | None:
    """SGLang's `matched_stop`, else vLLM's `stop_reason`; a number or null is a token's."""
    if not _finish(choice.get("finish_reason")):
        return None
    for key in ("matched_stop", "stop_reason"):
        if key in choice:
            found = choice[key]
            return Hint(text=found if isinstance(found, str) else None)
    return None


def _count(found: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = found.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) < 16:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if 0 <= value <= _MOST_TOKENS and value == int(value):
            return int(value)
    return None


def _error_of(error: Any, outer: Mapping[str, Any] | None = None) -> WireError:
    """An error inside a response of status 200; retryable unless it says that the request is at
    fault."""
    if isinstance(error, Mapping) and isinstance(error.get("error"), Mapping):
        error = error["error"]
    if not isinstance(error, Mapping):
        code = _code(outer or {})
        return WireError(_shown(error)[:1000], retryable=not _blames(code, ""))
    message = error.get("message") or error.get("detail") or dict(error)
    kind = f"{error.get('type')} {error.get('code')}".lower()
    refused = _blames(_code(error) or _code(outer or {}), kind)
    return WireError(f"{_shown(message)[:1000]}{_named_parameter(error)}", retryable=not refused)


def _code(error: Mapping[str, Any]) -> int | None:
    for key in ("code", "status", "status_code"):
        found = _count(error, key)
        if found is not None:
            return found
    return None


def _blames(code: int | None, kind: str) -> bool:
    if code is not None:
        return 400 <= code < 500 and code not in _RETRYABLE_CODES
    return any(word in kind for word in ("invalid_request", "badrequest", "context_length"))
