"""The protocol: function calls as in Chat, and a customer that answers every other message.

An action with a call goes to the airline's tools. Any other action is a message to the customer.
The customer replies by the rules of customer.py, or ends the conversation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.api import Answer, Chat, Codec, Decision, Say, View
from toolwright.reading.thoughts import after_thoughts

from .customer import reply


class ServiceDesk(Chat):
    """Chat with a scripted customer. The customer's words carry no loss.

    The task's metadata hold the customer's instructions, `customer`. Options are those of Chat.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"system_role": "user", **options})

    def decide(self, text: str, stop: str, view: View, codec: Codec) -> Decision:
        decision = super().decide(text, stop, view, codec)
        if not isinstance(decision, Answer):
            return decision
        instructions = view.task.metadata["customer"]
        said: list[str] = []
        for message in _messages(view, codec):
            said.append(reply(instructions, said, message) or "")
        words = reply(instructions, said, after_thoughts(decision.text))
        return decision if words is None else Say(text=words)


def _messages(view: View, codec: Codec) -> Iterator[str]:
    """Earlier messages to the customer: the actions without a call."""
    calling = {call.turn for call in view.calls}
    for turn, action in enumerate(view.actions):
        if turn not in calling:
            yield after_thoughts(action.removesuffix(codec.end_of_turn))
