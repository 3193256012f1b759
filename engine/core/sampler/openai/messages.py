"""Ids of a `ConversationCodec` to the messages of a chat request. Pure.

A turn may go on after a tool's answer, as with tags in plain text. There are two ways to express
that. One is an assistant's message that the server continues. The other is the answer as a user's
message after an assistant's message that has ended. Not every server can do the first.

Invariants
- Every text of the ids is in one message, once, in order.
- A message of role `tool` stands only after an assistant's with as many `tool_calls`. Any other is
  sent as a user's, since servers refuse it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.core.text.conversation_codec import ConversationCodec, MessageSpan
from toolwright.reading.actions import Tags, calls_in

Message = dict[str, Any]
Span = tuple[int, int]
"""Tokens of the whole request that a policy wrote, half open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatConversation:
    """Messages and tools of a chat request."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...]
    continues: bool
    """Whether the server must continue the last message, an assistant's."""


def chat_conversation(
    token_ids: Sequence[int],
    codec: ConversationCodec,
    *,
    written: Sequence[Span],
    as_user: bool,
    call_tags: tuple[str, str],
    received: str = "",
) -> ChatConversation:
    """The messages of a chat request.

    written: spans that the policy wrote. as_user: observations inside an assistant's turn are a
    user's messages. received: text of the action in progress; only without `as_user`. Raises
    ValueError for ids that do not end in an open turn.
    """
    spans = codec.message_spans(token_ids)
    if not spans.messages or spans.messages[-1].closed:
        raise ValueError("the request does not end in an open turn: there is nothing to write")
    *before, last_turn = spans.messages
    if last_turn.role != "assistant":
        before.append(last_turn)
    messages: list[Message] = []
    for turn in before:
        text = codec.decode(token_ids[turn.start : turn.end])
        messages.append({"role": turn.role, "content": text})
    if spans.tools:
        messages = _with_calls(messages, call_tags)
    messages = [_sendable(message) for message in messages]
    last: list[Message] = []
    if last_turn.role == "assistant":
        last = _open_turn(token_ids, last_turn, codec, written, as_user, received)
    elif received and not as_user:
        last = [{"role": "assistant", "content": received}]
    return ChatConversation(
        messages=(*messages, *last),
        tools=spans.tools,
        continues=bool(last) and last[-1]["role"] == "assistant",
    )


def plain_text(token_ids: Sequence[int], codec: ConversationCodec) -> str:
    """The prompt for a completions API whose model has no template here: texts of all messages with
    blank lines between them. The open turn follows at once: a raw prompt is sent unchanged."""
    turns = codec.message_spans(token_ids).messages
    *before, last = [codec.decode(token_ids[turn.start : turn.end]) for turn in turns] or [""]
    return "\n\n".join(before) + last


def _open_turn(
    token_ids: Sequence[int],
    turn: MessageSpan,
    codec: ConversationCodec,
    written: Sequence[Span],
    as_user: bool,
    received: str,
) -> list[Message]:
    if not as_user:
        text = codec.decode(token_ids[turn.start :]) + received
        return [{"role": "assistant", "content": text}] if text else []
    messages: list[Message] = []
    at = turn.start
    for start, end in (*written, (len(token_ids), len(token_ids))):
        if end < at or start < at:
            continue
        for role, piece in (("user", token_ids[at:start]), ("assistant", token_ids[start:end])):
            text = codec.decode(piece)
            if text and messages and messages[-1]["role"] == role:
                messages[-1]["content"] += text
            elif text:
                messages.append({"role": role, "content": text})
        at = end
    return messages


def _with_calls(messages: Sequence[Message], tags: tuple[str, str]) -> list[Message]:
    """Turns calls that an assistant wrote as text into `tool_calls`, if the answers follow."""
    found: list[Message] = []
    waiting: list[str] = []
    for number, message in enumerate(messages):
        role = message["role"]
        if role == "assistant":
            answers = _answers_after(messages, number)
            text, calls = _split_calls(message["content"], tags, f"call_{number}")
            waiting = []
            if calls and len(calls) == answers:
                message = {"role": role, "content": text or None, "tool_calls": calls}
                waiting = [call["id"] for call in calls]
        elif role == "tool" and waiting:
            message = {**message, "tool_call_id": waiting.pop(0)}
        found.append(message)
    return found


def _answers_after(messages: Sequence[Message], number: int) -> int:
    count = 0
    for message in messages[number + 1 :]:
        if message["role"] != "tool":
            break
        count += 1
    return count


def _split_calls(text: str, tags: tuple[str, str], name: str) -> tuple[str, list[Message]]:
    """(text before the first call, the calls). Returns no calls if one of them cannot be read."""
    found = calls_in(text, Tags(*tags))
    calls: list[Message] = []
    for one in found:
        if one.call.arguments is None:
            return text, []
        arguments = json.dumps(dict(one.call.arguments), ensure_ascii=False)
        calls.append(
            {
                "id": f"{name}_{len(calls)}",
                "type": "function",
                "function": {"name": one.call.name, "arguments": arguments},
            }
        )
    return (text[: found[0].start].rstrip(), calls) if calls else (text, [])


def _sendable(message: Message) -> Message:
    if message["role"] == "tool" and "tool_call_id" not in message:
        return {**message, "role": "user"}
    return message
