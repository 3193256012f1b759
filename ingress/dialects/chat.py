"""OpenAI's chat completions: requests to neutral ones, replies to responses and chunks. Pure.

Keys that do not change the completion are ignored: `user`, `metadata`, `store`, `service_tier`,
`parallel_tool_calls` and the like. `logprobs` are those of the record.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
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
    End,
    Message,
    ModelRequest,
    Role,
    Said,
    Sampling,
    TokenLogprob,
    ToolCall,
    ToolChoice,
    Usage,
)
from toolwright.ingress.limits import MOST_CHOICES

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def read_request(body: object) -> ModelRequest:
    """The request of a JSON body. Raises ApiError, which names the wrong key."""
    if not isinstance(body, Mapping):
        raise ApiError("the body must be a JSON object")
    messages = objects(body, "messages", MOST_MESSAGES)
    if not messages:
        raise wrong("messages", "at least one message is needed")
    if flag_at(body, "logprobs") and whole_at(body, "top_logprobs", 0, 20):
        raise wrong("top_logprobs", "the record has the sampled tokens alone: send 0")
    choice, named = _tool_choice(body.get("tool_choice"))
    options = body.get("stream_options")
    return ModelRequest(
        model=text_at(body, "model"),
        messages=tuple(_message(one, f"messages[{at}]") for at, one in enumerate(messages)),
        tools=tuple(_tool(one, f"tools[{at}]") for at, one in enumerate(_tools(body))),
        tool_choice=choice,
        named_tool=named,
        schema=_schema(body.get("response_format")),
        n=whole_at(body, "n", 1, MOST_CHOICES) or 1,
        stream=flag_at(body, "stream"),
        stream_usage=isinstance(options, Mapping) and flag_at(options, "include_usage"),
        logprobs=flag_at(body, "logprobs"),
        sampling=read_sampling(body),
        stops=stops_at(body, "stop"),
    )


def read_sampling(body: Mapping[str, Any]) -> Sampling:
    """Sampling parameters of a body. Raises ApiError."""
    return Sampling(
        temperature=number_at(body, "temperature", 0, 100),
        top_p=number_at(body, "top_p", 0, 1),
        top_k=whole_at(body, "top_k", -1),
        min_p=number_at(body, "min_p", 0, 1),
        repetition_penalty=number_at(body, "repetition_penalty", 0, 100),
        seed=whole_at(body, "seed", 0, 2**63 - 1),
        max_new_tokens=whole_at(body, "max_completion_tokens", 1)
        or whole_at(body, "max_tokens", 1),
    )


def read_role(given: object, where: str) -> Role:
    """The role of a message. Raises ApiError for another word."""
    role = _ROLES.get(str(given))
    if role is None:
        raise wrong(f"{where}.role", f"it must be one of {', '.join(_ROLES)}")
    return role


def _message(given: Mapping[str, Any], where: str) -> Message:
    role = read_role(given.get("role"), where)
    content, parts = given.get("content"), ("text", "refusal")
    text = joined_text(content, f"{where}.content", parts, result=role == "tool")
    if role == "system":
        text = without_billing(text)
    if role != "assistant":
        return Message(
            role=role,
            text=text,
            call_id=text_at(given, "tool_call_id", f"{where}."),
            name=text_at(given, "name", f"{where}."),
        )
    calls = objects(given, "tool_calls", MOST_TOOLS)
    return Message(
        role=role,
        text=text,
        reasoning=text_at(given, "reasoning_content", f"{where}.")
        or text_at(given, "reasoning", f"{where}."),
        calls=tuple(_call(one, f"{where}.tool_calls[{at}]") for at, one in enumerate(calls)),
        name=text_at(given, "name", f"{where}."),
    )


def _call(given: Mapping[str, Any], where: str) -> ToolCall:
    function = given.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise wrong(where, 'it must have "function" with a "name"')
    arguments = function.get("arguments")
    if isinstance(arguments, Mapping):
        arguments = json.dumps(arguments, ensure_ascii=False)
    if arguments is not None and not isinstance(arguments, str):
        raise wrong(f"{where}.function.arguments", "it must be a text")
    return ToolCall(
        id=text_at(given, "id", f"{where}."), name=function["name"], arguments=arguments or "{}"
    )


def _tools(body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return objects(body, "tools", MOST_TOOLS)


def _tool(given: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    function = given.get("function")
    if given.get("type", "function") != "function" or not isinstance(function, Mapping):
        raise wrong(where, "it must be a function")
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise wrong(f"{where}.function.name", "it must be a text")
    kept = {key: one for key, one in function.items() if key != "strict"}
    return {"type": "function", "function": kept}


def _tool_choice(given: object) -> tuple[ToolChoice, str]:
    """(choice, name of the one tool that must be called)."""
    match given:
        case None | "auto":
            return "auto", ""
        case "none":
            return "none", ""
        case "required":
            return "required", ""
        case {"function": {"name": str(name)}}:
            return "required", name
    raise wrong("tool_choice", 'it must be "auto", "none", "required" or a function')


def _schema(given: object) -> str | None:
    match given:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return '{"type": "object"}'
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return json.dumps(schema)
    raise wrong("response_format", "it must be text, json_object, or json_schema with a schema")


class ChatReply:
    """Writes the responses of one call."""

    def __init__(self, request: ModelRequest) -> None:
        self._head = {"id": "", "created": int(time.time()), "model": request.model}
        self._request = request
        self._begun: set[int] = set()

    def begin(self, response: str) -> list[ServerEvent]:
        self._head["id"] = f"chatcmpl-{response}"
        return []

    def said(self, said: Said) -> list[ServerEvent]:
        if isinstance(said.piece, ToolCall):
            call = {"index": said.number, **_shown_call(said.piece)}
            return [("", self._chunk(said.choice, {"tool_calls": [call]}))]
        key = "reasoning_content" if said.piece.reasoning else "content"
        return [("", self._chunk(said.choice, {key: said.piece.text}))]

    def end(self, end: CallEnd) -> list[ServerEvent]:
        """The last chunk of each choice, with the log-probs of all its tokens; then the usage, if
        the client wants it."""
        found: list[ServerEvent] = [
            ("", self._chunk(one.choice, {}, one.end, self._logprobs(one.logprobs)))
            for one in end.completions
        ]
        if self._request.stream_usage:
            usage = {"choices": [], "usage": usage_of(end.usage)}
            found.append(("", {**self._head, "object": "chat.completion.chunk", **usage}))
        return [*found, ("", "[DONE]")]

    def failed(self, error: ApiError) -> list[ServerEvent]:
        return [("", error_body(error))]

    def whole(self, end: CallEnd) -> dict[str, Any]:
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [
                {
                    "index": one.choice,
                    "message": _shown(one.message),
                    "finish_reason": one.end,
                    "logprobs": self._logprobs(one.logprobs),
                }
                for one in end.completions
            ],
            "usage": usage_of(end.usage),
        }

    def _chunk(
        self, choice: int, delta: dict[str, Any], end: End | None = None, logprobs: Any = None
    ) -> dict[str, Any]:
        if choice not in self._begun:
            self._begun.add(choice)
            delta = {"role": "assistant", **delta}
        return {
            **self._head,
            "object": "chat.completion.chunk",
            "choices": [
                {"index": choice, "delta": delta, "finish_reason": end, "logprobs": logprobs}
            ],
        }

    def _logprobs(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if not self._request.logprobs:
            return None
        return {
            "content": [
                {
                    "token": one.token,
                    "logprob": one.logprob,
                    "bytes": list(one.token.encode("utf-8", "replace")),
                    "top_logprobs": [],
                }
                for one in logprobs
            ],
            "refusal": None,
        }


def error_body(error: ApiError) -> dict[str, Any]:
    """The body of a refusal."""
    return {
        "error": {
            "message": error.message,
            "type": error.kind,
            "param": error.param or None,
            "code": error.code or None,
        }
    }


def _shown(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {
        "role": "assistant",
        "content": message.text or (None if message.calls else ""),
        "refusal": None,
    }
    if message.reasoning:
        found["reasoning_content"] = message.reasoning
    if message.calls:
        found["tool_calls"] = [_shown_call(call) for call in message.calls]
    return found


def _shown_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def usage_of(usage: Usage) -> dict[str, int]:
    """Numbers of tokens as OpenAI has them."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


CHAT = Dialect(read=read_request, reply=ChatReply, error=error_body)
