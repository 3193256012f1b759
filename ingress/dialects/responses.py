"""OpenAI's responses: requests to neutral ones, replies to responses and events. Pure.

A request may name an earlier response (`previous_response_id`) and send new items alone, unless
that response had `store = false`. As with OpenAI, it brings its own instructions and tools.
`include`, `metadata`, `reasoning` and the like are ignored.

A tool of a namespace is NAMESPACE.NAME for the policy. Codex sends a web search, which OpenAI's
server would run, in every request: it is left out, and other tools of that kind are refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from ingress.dialects.chat import error_body, read_role
from ingress.dialects.reading import (
    MOST_MESSAGES,
    MOST_TOOLS,
    flag_at,
    joined_text,
    number_at,
    objects,
    text_at,
    whole_at,
)
from ingress.dialects.types import Dialect, ServerEvent
from ingress.errors import ApiError, wrong
from ingress.types import (
    CallEnd,
    Message,
    ModelRequest,
    Said,
    Sampling,
    ToolCall,
    ToolChoice,
    Usage,
    Words,
)

_PARTS = ("input_text", "output_text", "text", "refusal")


def read_request(body: object) -> ModelRequest:
    """The request of a JSON body. Raises ApiError, which names the wrong key."""
    if not isinstance(body, Mapping):
        raise ApiError("the body must be a JSON object")
    if body.get("conversation") is not None:
        raise wrong("conversation", "it is not served: send previous_response_id or all items")
    previous = text_at(body, "previous_response_id")
    instructions = text_at(body, "instructions")
    messages = [Message(role="system", text=instructions)] if instructions else []
    lead = len(messages)
    given = body.get("input")
    if isinstance(given, str):
        messages.append(Message(role="user", text=given))
    else:
        messages += _joined(_items(objects(body, "input", MOST_MESSAGES)))
    if len(messages) == (lead if previous else 0):
        raise wrong("input", "at least one item is needed")
    choice, named = _tool_choice(body.get("tool_choice"))
    given_tools = objects(body, "tools", MOST_TOOLS)
    return ModelRequest(
        model=text_at(body, "model"),
        messages=tuple(messages),
        tools=tuple(
            tool for at, one in enumerate(given_tools) for tool in _tools(one, f"tools[{at}]")
        ),
        namespaces=tuple(
            text_at(one, "name") for one in given_tools if one.get("type") == "namespace"
        ),
        tool_choice=choice,
        named_tool=named,
        schema=_schema(body.get("text")),
        stream=flag_at(body, "stream"),
        previous=previous,
        instructions=lead,
        keep=body.get("store") is None or flag_at(body, "store"),
        sampling=Sampling(
            temperature=number_at(body, "temperature", 0, 100),
            top_p=number_at(body, "top_p", 0, 1),
            max_new_tokens=whole_at(body, "max_output_tokens", 1),
        ),
    )


def _items(given: list[Mapping[str, Any]]) -> Iterator[Message]:
    for at, item in enumerate(given):
        where = f"input[{at}]"
        match item.get("type", "message"):
            case "message":
                text = joined_text(item.get("content"), f"{where}.content", _PARTS)
                yield Message(role=read_role(item.get("role"), where), text=text)
            case "function_call":
                call = ToolCall(
                    id=text_at(item, "call_id", f"{where}."),
                    name=_within(
                        text_at(item, "namespace", f"{where}."),
                        text_at(item, "name", f"{where}."),
                    ),
                    arguments=text_at(item, "arguments", f"{where}.") or "{}",
                )
                yield Message(role="assistant", calls=(call,))
            case "function_call_output":
                yield Message(
                    role="tool",
                    text=joined_text(item.get("output"), f"{where}.output", _PARTS, result=True),
                    call_id=text_at(item, "call_id", f"{where}."),
                )
            case "reasoning":
                parts = item.get("content") or []
                text = joined_text(parts, f"{where}.content", ("reasoning_text",))
                yield Message(role="assistant", reasoning=text)
            case kind:
                raise wrong(where, f"an item of type {kind!r} is not supported")


def _joined(messages: Iterator[Message]) -> Iterator[Message]:
    """The items of an assistant's turn as one message, as the reply had it."""
    for role, group in groupby(messages, key=lambda message: message.role):
        if role != "assistant":
            yield from group
            continue
        items = list(group)
        yield Message(
            role=role,
            text="".join(one.text for one in items),
            reasoning="".join(one.reasoning for one in items),
            calls=tuple(call for one in items for call in one.calls),
        )


def _tools(
    given: Mapping[str, Any], where: str, namespace: str = ""
) -> Iterator[Mapping[str, Any]]:
    """The functions of one entry: several for a namespace, none for a web search."""
    match given.get("type"), given.get("name"):
        case "function", str(name):
            kept = {"name": _within(namespace, name)}
            kept |= {key: given[key] for key in _KEPT if given.get(key) is not None}
            yield {"type": "function", "function": kept}
        case "namespace", str(name) if not namespace:
            for at, one in enumerate(objects(given, "tools", MOST_TOOLS)):
                yield from _tools(one, f"{where}.tools[{at}]", name)
        case "web_search", _:
            pass
        case kind, _:
            raise wrong(where, f"it must be a function with a name, and its type is {kind!r}")


_KEPT = ("description", "parameters")


def _within(namespace: str, name: str) -> str:
    return f"{namespace}.{name}" if namespace else name


def _tool_choice(given: object) -> tuple[ToolChoice, str]:
    match given:
        case None | "auto":
            return "auto", ""
        case "none":
            return "none", ""
        case "required":
            return "required", ""
        case {"type": "function", "name": str(name)}:
            return "required", name
    raise wrong("tool_choice", 'it must be "auto", "none", "required" or a function')


def _schema(given: object) -> str | None:
    match given.get("format") if isinstance(given, Mapping) else None:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return '{"type": "object"}'
        case {"type": "json_schema", "schema": dict(schema)}:
            return json.dumps(schema)
    raise wrong("text.format", "it must be text, json_object, or json_schema with a schema")


class ResponsesReply:
    """Writes the responses of one call."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._id = ""
        self._created = int(time.time())
        self._number = -1
        """Number of the last event."""
        self._items: list[dict[str, Any]] = []
        """Items of the output, the open one included."""
        self._open = ""
        """Type of the open item; "" = no item."""

    def begin(self, response: str) -> list[ServerEvent]:
        self._id = f"resp_{response}"
        begun = self._response("in_progress", Usage())
        return [
            self._event("response.created", response=begun),
            self._event("response.in_progress", response=begun),
        ]

    def said(self, said: Said) -> list[ServerEvent]:
        if isinstance(said.piece, ToolCall):
            return self._call(said.piece)
        words = said.piece
        kind = "reasoning" if words.reasoning else "message"
        found = [] if self._open == kind else self._begun(kind)
        part = self._items[-1]["content"][0]
        part["text"] += words.text
        return [*found, self._text_event(kind, "delta", delta=words.text)]

    def end(self, end: CallEnd) -> list[ServerEvent]:
        found = self._closed()
        (complete,) = end.completions
        cut = complete.end == "length"
        status = "incomplete" if cut else "completed"
        response = self._response(status, end.usage)
        return [*found, self._event(f"response.{status}", response=response)]

    def failed(self, error: ApiError) -> list[ServerEvent]:
        fields = {"code": error.code or error.kind, "message": error.message, "param": None}
        return [self._event("error", **fields)]

    def whole(self, end: CallEnd) -> dict[str, Any]:
        (complete,) = end.completions
        message = complete.message
        if message.reasoning:
            self.said(Said(choice=0, piece=Words(text=message.reasoning, reasoning=True)))
        if message.text:
            self.said(Said(choice=0, piece=Words(text=message.text)))
        for call in message.calls:
            self._call(call)
        self._closed()
        return self._response("incomplete" if complete.end == "length" else "completed", end.usage)

    def _call(self, call: ToolCall) -> list[ServerEvent]:
        found = self._closed()
        namespace, _, name = call.name.rpartition(".")
        within = namespace in self._request.namespaces
        item = {
            "id": self._item_id("fc"),
            "type": "function_call",
            "call_id": call.id,
            "name": name if within else call.name,
            **({"namespace": namespace} if within else {}),
            "arguments": "",
            "status": "in_progress",
        }
        self._items.append(item)
        index, arguments = len(self._items) - 1, call.arguments
        place = {"item_id": item["id"], "output_index": index}
        whole = {**item, "arguments": arguments, "status": "completed"}
        self._items[-1] = whole
        arrived = "response.function_call_arguments"
        return [
            *found,
            self._event("response.output_item.added", output_index=index, item=item),
            self._event(f"{arrived}.delta", **place, delta=arguments),
            self._event(f"{arrived}.done", **place, name=item["name"], arguments=arguments),
            self._event("response.output_item.done", output_index=index, item=whole),
        ]

    def _begun(self, kind: str) -> list[ServerEvent]:
        """Events that close the open item and open another one with text."""
        found = self._closed()
        self._open = kind
        item: dict[str, Any] = {"type": kind, "status": "in_progress"}
        if kind == "message":
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
            item |= {"id": self._item_id("msg"), "role": "assistant"}
        else:
            part = {"type": "reasoning_text", "text": ""}
            item |= {"id": self._item_id("rs"), "summary": []}
        self._items.append({**item, "content": [part]})
        index = len(self._items) - 1
        place = {"item_id": item["id"], "output_index": index, "content_index": 0}
        return [
            *found,
            self._event(
                "response.output_item.added", output_index=index, item={**item, "content": []}
            ),
            self._event("response.content_part.added", **place, part=dict(part)),
        ]

    def _closed(self) -> list[ServerEvent]:
        if not self._open:
            return []
        kind, self._open = self._open, ""
        item = self._items[-1]
        item["status"] = "completed"
        (part,) = item["content"]
        index = len(self._items) - 1
        place = {"item_id": item["id"], "output_index": index, "content_index": 0}
        return [
            self._text_event(kind, "done", text=part["text"]),
            self._event("response.content_part.done", **place, part=dict(part)),
            self._event("response.output_item.done", output_index=index, item=item),
        ]

    def _text_event(self, kind: str, step: str, **fields: Any) -> ServerEvent:
        name = "output_text" if kind == "message" else "reasoning_text"
        logprobs: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        return self._event(
            f"response.{name}.{step}",
            item_id=self._items[-1]["id"],
            output_index=len(self._items) - 1,
            content_index=0,
            **logprobs,
            **fields,
        )

    def _event(self, name: str, /, **fields: Any) -> ServerEvent:
        self._number += 1
        return name, {"type": name, "sequence_number": self._number, **fields}

    def _item_id(self, kind: str) -> str:
        return f"{kind}_{self._id.removeprefix('resp_')}_{len(self._items)}"

    def _response(self, status: str, usage: Usage) -> dict[str, Any]:
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": self._request.model,
            "output": [dict(item) for item in self._items],
            "error": None,
            "incomplete_details": cut,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "previous_response_id": self._request.previous or None,
            "store": self._request.keep,
            "temperature": None,
            "top_p": None,
            "tool_choice": "auto",
            "tools": [],
            "usage": None if status == "in_progress" else _usage(usage),
        }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


RESPONSES = Dialect(read=read_request, reply=ResponsesReply, error=error_body)
