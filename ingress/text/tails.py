"""Token ids of a request: of all its messages, or of those after a recorded call. Pure but for the
tokenizer.

A recorded call is never rendered again. The new messages are rendered after a stub of an
assistant's message, and the text before the stub's end is cut off. The rest is a tail.

Invariants
- A tail begins at the control token that ends an assistant's turn: no token reaches over the cut.
- There is no tail if the template refuses the stub, drops it, writes it twice, or writes the tools
  after it. The caller then renders the whole request.
- Control tokens that messages spell become text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingress.text.rendering import template_messages
from ingress.types import Message
from toolwright.chat.tokenizer import ChatTokenizer
from toolwright.types import Author

_STUB = "toolwright-stub-of-a-recorded-call"
_USER = Message(role="user", text="x")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptIds:
    """Ids to send to the engine."""

    token_ids: list[int]
    authors: tuple[tuple[Author, int], ...]
    """Runs in order; their counts add up to the number of ids."""


class Tails:
    """Rendering with one tokenizer. Serves one thread at a time, as the tokenizer does."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._end = tokenizer.token_id(tokenizer.end_of_turn)
        self._ends = frozenset(
            token for token in map(tokenizer.token_id, tokenizer.turn_ends) if token is not None
        )

    def fresh(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> PromptIds:
        """Ids of the whole request. Raises ValueError if the template refuses it."""
        found = self._tokenizer.chat_ids(template_messages(messages), tools=tools or None)
        return PromptIds(token_ids=found, authors=((Author.PROMPT, len(found)),))

    def raw(self, prompt: str | tuple[int, ...]) -> PromptIds:
        """Ids of a prompt without a template. A control token that the text spells is one. Raises
        ValueError for an id that the tokenizer does not have."""
        found = self._tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not found or max(found) >= self._tokenizer.size:
            raise ValueError(f"a prompt has ids from 0 to {self._tokenizer.size - 1}, one at least")
        return PromptIds(token_ids=found, authors=((Author.PROMPT, len(found)),))

    def tail(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        *,
        turn_ended: bool,
    ) -> PromptIds | None:
        """Ids of the messages after a recorded call; None if they cannot be rendered alone.

        turn_ended: the recorded ids end with the end of the turn, so the tail begins after it.
        """
        text = self._text_after_stub(messages, tools)
        if text is None:
            return None
        found = self._tokenizer.ids_of(text)
        if not found or found[0] not in self._ends:
            return None
        author = Author.TOOL if any(one.role == "tool" for one in messages) else Author.PROMPT
        authors = ((author, len(found) - 1),) if len(found) > 1 else ()
        if turn_ended:
            if found[0] != self._end:
                return None  # the template ends turns by the next role's token (GLM)
            return PromptIds(token_ids=found[1:], authors=authors)
        return PromptIds(token_ids=found, authors=((Author.TEMPLATE, 1), *authors))

    def _text_after_stub(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> str | None:
        """What the template writes after the stub, guarded. Raises no error of the template."""
        opening = template_messages([_USER, Message(role="assistant", text=_STUB)])
        new = template_messages(messages)
        try:
            whole = self._tokenizer.guarded_chat([*opening, *new], tools=tools or None)
            bare = self._tokenizer.guarded_chat([*opening, *new]) if tools else whole
        except ValueError:
            return None
        head, found, rest = whole.partition(_STUB)
        if not found or _STUB in rest or bare.partition(_STUB)[2] != rest:
            # The template writes the tools after the stub: once in each tail would be too often.
            return None
        return rest if head else None


def splittable(tokenizer: ChatTokenizer) -> bool:
    """Whether tails give the ids that the template gives for a whole conversation."""
    tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}]
    first = [Message(role="system", text="s"), Message(role="user", text="u")]
    said = Message(role="assistant", text="a")
    new = [Message(role="user", text="v")]
    tails = Tails(tokenizer)
    try:
        whole = tails.fresh([*first, said, *new], tools).token_ids
        begun = tails.fresh(first, tools).token_ids
        tail = tails.tail(new, tools, turn_ended=False)
    except ValueError:
        return False
    if tail is None:
        return False
    size = len(tail.token_ids)
    return whole[-size:] == tail.token_ids and whole[: len(begun)] == begun
