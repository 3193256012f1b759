"""A codec for servers that take messages: its ids can be turned into messages again.

Chat APIs take messages, but the turn loop has only ids. So the ids hold the conversation: four
control tokens of this codec separate its messages, and an inner codec encodes and counts the text.
The policy's chat template is not used, because the server has its own.

Invariants
- `message_spans(chat_ids(messages, tools=tools))` has the roles and texts of the messages, and the
  tools.
- Text of messages, tools and policies never becomes a control token. Only `encode`, for our own
  text, reads their spellings.
- Ids of the inner codec are unchanged; control tokens lie above its vocabulary.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.core.text.messages import calls_of, content_of

_TURN, _SAYS, _END, _TOOLS = "<|turn|>", "<|says|>", "<|end_of_turn|>", "<|tools|>"
_CONTROL = (_TURN, _SAYS, _END, _TOOLS)
_SPELLED = re.compile("|".join(re.escape(text) for text in _CONTROL))
CALL_TAGS = ("<tool_call>", "</tool_call>")
"""Tags around a call in the text of an assistant's message with `tool_calls`."""


class TextCodec(Protocol):
    """Encodes and counts the text between control tokens."""

    vocab_size: int
    hash: str

    def encode(self, text: str) -> list[int]: ...

    def encode_plain(self, text: str) -> list[int]: ...

    def decode(self, token_ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpan:
    """One message in a list of ids."""

    role: str
    start: int
    """Position of its text's first id."""
    end: int
    """Position after its text's last id."""
    closed: bool
    """Its end of turn is in the ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSpans:
    """The messages in a list of ids. tools: in the form that chat templates take."""

    tools: tuple[Mapping[str, Any], ...]
    messages: tuple[MessageSpan, ...]


class ConversationCodec:
    """A codec of conversations over an inner codec."""

    image_mark = None
    thought = None
    """The server's own template has the thoughts, and the server removes them."""

    def __init__(self, inner: TextCodec) -> None:
        self._inner = inner
        self._base = inner.vocab_size
        self._ids = {text: self._base + number for number, text in enumerate(_CONTROL)}
        self.vocab_size = self._base + len(_CONTROL)
        self.hash = hashlib.sha256(f"turns of {inner.hash}".encode()).hexdigest()
        self.end_of_turn = _END
        self.turn_ends = (_END,)

    def encode(self, text: str) -> list[int]:
        found: list[int] = []
        at = 0
        for spelled in _SPELLED.finditer(text):
            found += self._inner.encode(text[at : spelled.start()])
            found.append(self._ids[spelled.group()])
            at = spelled.end()
        return found + self._inner.encode(text[at:])

    def encode_plain(self, text: str) -> list[int]:
        return self._inner.encode_plain(text)

    def encode_action(self, text: str) -> list[int]:
        """Ids of a policy's text, and the end of its turn if the text ends with it.

        Control tokens of the inner codec keep their ids; none of them opens a message.
        """
        body = text.removesuffix(_END)
        ended = [self._ids[_END]] if len(body) < len(text) else []
        return self._inner.encode(body) + ended

    def decode(self, token_ids: Sequence[int]) -> str:
        parts, at = [], 0
        for position, token in enumerate(token_ids):
            if token >= self._base:
                parts.append(self._inner.decode(token_ids[at:position]))
                parts.append(_CONTROL[token - self._base])
                at = position + 1
        parts.append(self._inner.decode(token_ids[at:]))
        return "".join(parts)

    def token_id(self, token: str) -> int | None:
        found = self.encode(token)
        return found[0] if len(found) == 1 and self.decode(found) == token else None

    def guarded(self, text: str) -> str:
        """The text unchanged: no text of a message becomes a control token."""
        return text

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation_prompt: bool = True,
    ) -> str:
        return self.decode(
            self.chat_ids(messages, tools=tools, generation_prompt=generation_prompt)
        )

    def chat_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation_prompt: bool = True,
    ) -> list[int]:
        """Ids of messages. Raises ValueError for one without a role or text."""
        found: list[int] = []
        if tools:
            listed = json.dumps([dict(tool) for tool in tools], ensure_ascii=False)
            found += [self._ids[_TOOLS], *self.encode_plain(listed), self._ids[_END]]
        for message in messages:
            found += self._opened(message.get("role"))
            found += self.encode_plain(_text(message))
            found.append(self._ids[_END])
        return found + self._opened("assistant") if generation_prompt else found

    def message_spans(self, token_ids: Sequence[int]) -> ConversationSpans:
        """The messages of `chat_ids` and of the text after it. Raises ValueError for other ids."""
        marks = [(at, token) for at, token in enumerate(token_ids) if token >= self._base]
        tools: tuple[Mapping[str, Any], ...] = ()
        messages: list[MessageSpan] = []
        position = past = 0
        while position < len(marks):
            (at, token), rest = marks[position], marks[position + 1 : position + 3]
            kind = _CONTROL[token - self._base]
            messages += self._stray(token_ids, past, at)
            if kind == _TOOLS and rest and rest[0][1] == self._ids[_END]:
                tools = tuple(json.loads(self._inner.decode(token_ids[at + 1 : rest[0][0]])))
                past = rest[0][0] + 1
                position += 2
            elif kind == _TURN and rest and rest[0][1] == self._ids[_SAYS]:
                role = self._inner.decode(token_ids[at + 1 : rest[0][0]])
                closed = len(rest) > 1 and rest[1][1] == self._ids[_END]
                end = rest[1][0] if len(rest) > 1 else len(token_ids)
                messages.append(
                    MessageSpan(role=role, start=rest[0][0] + 1, end=end, closed=closed)
                )
                past = end + 1 if closed else end
                position += 3 if closed else 2
            else:
                raise ValueError(f"{kind} at token {at} opens no message")
        messages += self._stray(token_ids, past, len(token_ids))
        return ConversationSpans(tools=tools, messages=tuple(messages))

    def _stray(self, token_ids: Sequence[int], start: int, end: int) -> list[MessageSpan]:
        """Text outside of messages: a protocol's own text after the end of one."""
        if not self._inner.decode(token_ids[start:end]).strip():
            return []
        return [MessageSpan(role="user", start=start, end=end, closed=False)]

    def _opened(self, role: object) -> list[int]:
        if not isinstance(role, str) or not role:
            raise ValueError(f"a message has the role {role!r}: write a word")
        return [self._ids[_TURN], *self.encode_plain(role), self._ids[_SAYS]]


def _text(message: Mapping[str, Any]) -> str:
    """A message's text, its `tool_calls` in tags."""
    text = content_of(message)
    for name, arguments in calls_of(message):
        call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
        text += f"{CALL_TAGS[0]}\n{call}\n{CALL_TAGS[1]}"
    return text
