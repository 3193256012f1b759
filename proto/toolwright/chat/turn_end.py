"""The token that a chat template writes after an assistant's message. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

_ACTION, _NEXT = "toolwright-action-sentinel", "toolwright-next-sentinel"


class _Chat(Protocol):
    def __call__(
        self, messages: Sequence[dict[str, str]], *, generation_prompt: bool = True
    ) -> str: ...


def template_end(chat: _Chat, first_control: Callable[[str], str]) -> str:
    """The control token that the template writes after an assistant's message, "" without one.

    first_control: the first control token of a text, "" without one. A template that ends a turn
    only by the next role's token (GLM) has that of a user's message.
    """
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": _ACTION}]
    for more in ([], [{"role": "user", "content": _NEXT}]):
        try:
            text = chat([*messages, *more], generation_prompt=False)
        except ValueError:
            return ""
        end = first_control(text.rpartition(_ACTION)[2].partition(_NEXT)[0])
        if end:
            return end
    return ""
