"""Anthropic's messages: requests to neutral ones, replies to messages and events. Pure.

Signatures of thoughts, `cache_control`, `metadata` and `thinking` are ignored. A system message has
its blocks in lines. Tool results of a user's message come before its text, as the API requires. A
tool with `defer_loading` is shown where a result refers to it, so a conversation that loads tools
goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ingress.canon import without_billing
from ingress.dialects.reading import (
    MOST_MESSAGES,
    MOST_TOOLS,
    flag_at,
    joined_text,
    number_at,
    objects,
    stops_at,
    text_at,
    whole_at,
)
from ingress.dialects.types import Dialect, ServerEvent
from ingress.errors import ApiError, wrong
from ingress.types import (
    CallEnd,
    Complete,
    Message,
    ModelRequest,
    Said,
    Sampling,
    ToolCall,
    ToolChoice,
    Usage,
    Words,
)

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
"""Types of errors by their HTTP status; others are "api_error" from 500 on."""
_MOST_BLOCKS = 4096


def read_request(body: object) -> ModelRequest:
    """The request of a JSON body. Raises ApiError, which names the wrong key."""
    if not isinstance(body, Mapping):
        raise ApiError("the body must be a JSON object")
    given = objects(body, "messages", MOST_MESSAGES)
    if not given:
        raise wrong("messages", "at least one message is needed")
    tools = objects(body, "tools", MOST_TOOLS)
    read = [(_tool(one, f"tools[{at}]"), flag_at(one, "defer_loading"))
            for at, one in enumerate(tools)]  # fmt: skip
    later = {tool["function"]["name"]: tool for tool, deferred in read if deferred}
    messages = [*_system(body.get("system"))]
    for at, one in enumerate(given):
        messages += _messages(one, f"messages[{at}]", later)
    if len(messages) > MOST_MESSAGES:
        raise wrong("messages", f"it has {len(messages)} with tool results; {MOST_MESSAGES} fit")
    choice, named = _tool_choice(body.get("tool_choice"))
    return ModelRequest(
        model=text_at(body, "model"),
        messages=tuple(messages),
        tools=tuple(tool for tool, deferred in read if not deferred),
        later_tools=tuple(later.values()),
        tool_choice=choice,
        named_tool=named,
        stream=flag_at(body, "stream"),
        sampling=Sampling(
            temperature=number_at(body, "temperature", 0, 100),
            top_p=number_at(body, "top_p", 0, 1),
            top_k=whole_at(body, "top_k", -1),
            max_new_tokens=whole_at(body, "max_tokens", 1),
        ),
        stops=stops_at(body, "stop_sequences"),
    )


def _system(given: object) -> Iterator[Message]:
    if isinstance(given, list):
        lines = [joined_text([block], f"system[{at}]") for at, block in enumerate(given)]
    else:
        lines = [joined_text(given, "system")]
    text = "\n".join(filter(None, map(without_billing, lines)))
    if text:
        yield Message(role="system", text=text)


def _messages(
    given: Mapping[str, Any], where: str, later: Mapping[str, Mapping[str, Any]]
) -> Iterator[Message]:
    """The messages of one: each tool result is a message. later: deferred tools by name."""
    content, role = given.get("content"), given.get("role")
    if role not in ("user", "assistant", "system"):
        raise wrong(f"{where}.role", 'it must be "user" or "assistant"')
    blocks: Any = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not all(isinstance(one, Mapping) for one in blocks):
        raise wrong(f"{where}.content", "it must be a text or a list of blocks")
    if len(blocks) > _MOST_BLOCKS:
        raise wrong(f"{where}.content", f"it has {len(blocks)} blocks; {_MOST_BLOCKS} are the most")
    text: list[str] = []
    reasoning: list[str] = []
    calls: list[ToolCall] = []
    for at, block in enumerate(blocks):
        place = f"{where}.content[{at}]."
        match block.get("type"), role:
            case "text", _:
                text.append(text_at(block, "text", place))
            case "thinking", "assistant":
                reasoning.append(text_at(block, "thinking", place))
            case "redacted_thinking", "assistant":
                pass
            case "tool_use", "assistant":
                calls.append(_call(block, place))
            case "tool_result", "user":
                yield Message(
                    role="tool",
                    text=joined_text(
                        _shown(block.get("content"), later), f"{place}content", result=True
                    ),
                    call_id=text_at(block, "tool_use_id", place),
                )
            case kind, _:
                raise wrong(place.rstrip("."), f"a block of type {kind!r} is not supported here")
    if role == "user" and not text and blocks:
        return
    yield Message(role=role, text="".join(text), reasoning="".join(reasoning), calls=tuple(calls))


def _shown(content: object, later: Mapping[str, Mapping[str, Any]]) -> object:
    """The content of a result, with the tools to which it refers as lines of text."""
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": json.dumps(later.get(name, name), ensure_ascii=False) + "\n"}
        if isinstance(part, Mapping)
        and part.get("type") == "tool_reference"
        and isinstance(name := part.get("tool_name"), str)
        else part
        for part in content
    ]


def _call(block: Mapping[str, Any], where: str) -> ToolCall:
    arguments = block.get("input", {})
    if not isinstance(arguments, Mapping):
        raise wrong(f"{where}input", "it must be an object")
    return ToolCall(
        id=text_at(block, "id", where),
        name=text_at(block, "name", where),
        arguments=json.dumps(arguments, ensure_ascii=False),
    )


def _tool(given: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    if given.get("type") not in (None, "custom"):
        raise wrong(where, f"a tool of type {given['type']!r} is not supported")
    name = text_at(given, "name", f"{where}.")
    if not name:
        raise wrong(f"{where}.name", "it must be a text")
    function = {"name": name}
    if description := text_at(given, "description", f"{where}."):
        function["description"] = description
    return {
        "type": "function",
        "function": {**function, "parameters": given.get("input_schema") or {"type": "object"}},
    }


def _tool_choice(given: object) -> tuple[ToolChoice, str]:
    """(choice, name of the one tool that must be called)."""
    match given:
        case None | {"type": "auto"}:
            return "auto", ""
        case {"type": "none"}:
            return "none", ""
        case {"type": "any"}:
            return "required", ""
        case {"type": "tool", "name": str(name)}:
            return "required", name
    raise wrong("tool_choice", "its type must be auto, any, tool or none")


class MessagesReply:
    """Writes the responses of one call."""

    def __init__(self, request: ModelRequest) -> None:
        self._head = {
            "id": "",
            "type": "message",
            "role": "assistant",
            "model": request.model,
        }
        self._open: str = ""
        """Type of the block that is open; "" = no block."""
        self._blocks = 0
        """Number of blocks that were opened."""

    def begin(self, response: str) -> list[ServerEvent]:
        self._head["id"] = f"msg_{response}"
        begun: dict[str, Any] = {
            **self._head,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(Usage()),
        }
        return [_event("message_start", message=begun)]

    def said(self, said: Said) -> list[ServerEvent]:
        if isinstance(said.piece, Words):
            words = said.piece
            kind, key = ("thinking", "thinking") if words.reasoning else ("text", "text")
            found = [] if self._open == kind else self._begun(kind, {key: ""} | _signed(kind))
            return [*found, self._delta({"type": f"{kind}_delta", key: words.text})]
        call = said.piece
        found = self._begun("tool_use", {"id": call.id, "name": call.name, "input": {}})
        delta = {"type": "input_json_delta", "partial_json": call.arguments}
        return [*found, self._delta(delta), *self._closed()]

    def end(self, end: CallEnd) -> list[ServerEvent]:
        (complete,) = end.completions
        return [
            *self._closed(),
            _event("message_delta", delta=_ending(complete), usage=_usage(end.usage)),
            _event("message_stop"),
        ]

    def failed(self, error: ApiError) -> list[ServerEvent]:
        return [("error", error_body(error))]

    def whole(self, end: CallEnd) -> dict[str, Any]:
        (complete,) = end.completions
        return {
            **self._head,
            "content": _content(complete.message),
            **_ending(complete),
            "usage": _usage(end.usage),
        }

    def _begun(self, kind: str, fields: Mapping[str, Any]) -> list[ServerEvent]:
        """Events that close the open block and open another one."""
        found = self._closed()
        self._open = kind
        block = {"type": kind, **fields}
        found.append(_event("content_block_start", index=self._blocks, content_block=block))
        self._blocks += 1
        return found

    def _delta(self, delta: Mapping[str, Any]) -> ServerEvent:
        return _event("content_block_delta", index=self._blocks - 1, delta=delta)

    def _closed(self) -> list[ServerEvent]:
        if not self._open:
            return []
        self._open = ""
        return [_event("content_block_stop", index=self._blocks - 1)]


def error_body(error: ApiError) -> dict[str, Any]:
    """The body of a refusal."""
    kind = _KINDS.get(error.status, "api_error" if error.status >= 500 else _KINDS[400])
    message = error.message
    if error.code == "context_length_exceeded":
        # Claude Code looks for these words, and leaves out as much as the two numbers say.
        message = f"prompt is too long: {message.rpartition(': ')[2]}"
    return {"type": "error", "error": {"type": kind, "message": message}}


def _event(name: str, **fields: Any) -> ServerEvent:
    return name, {"type": name, **fields}


def _signed(kind: str) -> dict[str, str]:
    """A thought has a signature, which is empty here."""
    return {"signature": ""} if kind == "thinking" else {}


def _content(message: Message) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if message.reasoning:
        found.append({"type": "thinking", "thinking": message.reasoning, "signature": ""})
    if message.text:
        found.append({"type": "text", "text": message.text})
    for call in message.calls:
        arguments = json.loads(call.arguments)
        found.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return found


def _ending(complete: Complete) -> dict[str, Any]:
    reason = {"length": "max_tokens", "tool_calls": "tool_use"}.get(complete.end, "end_turn")
    if complete.stop:
        reason = "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": complete.stop or None}


def _usage(usage: Usage) -> dict[str, int]:
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}


MESSAGES = Dialect(read=read_request, reply=MessagesReply, error=error_body)
