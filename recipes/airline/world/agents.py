"""What the scripted agents write: whole conversations, message by message; pure.

    solving             the expected actions, after the customer's yes, and the required outputs
    cancels another     the same, and it cancels a reservation of another customer
    pays too much       the same, and it sends that customer a certificate
    reads only          the expected actions that change nothing, and says that all is done
    only claims         no action, and says that all is done
    transfers           gives the customer to a human agent

No agent decides anything here. They show how the reward judges an agent that does well and five
that do not. They say nothing about a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Wanted = Mapping[str, Any]
"""Expected `actions`, each with `name` and `arguments`, and `outputs`."""
SOLVING = "solving"
CHANGES = ("book", "cancel", "update", "send")
"""First words of the tools that change the database."""
ASKS = "May I have your user id and your reservation number?"
CONFIRMS = "I can do what you ask for. Do you confirm that?"
HOLD = "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON."


def messages(agent: str, wanted: Wanted, other: tuple[str, str]) -> list[str]:
    """All that an agent writes; it repeats the last message until the customer is content.

    other: (user id, reservation id) of another customer. Raises KeyError for an unknown agent.
    """
    if agent == SOLVING:
        return [ASKS, *_acts(wanted), _done(wanted)]
    return DAMAGES[agent](wanted, other)


def _acts(wanted: Wanted) -> list[str]:
    """The expected actions, and the request for a yes before the first change."""
    actions = wanted["actions"]
    first = next((place for place, one in enumerate(actions) if changes(one)), len(actions))
    return [*map(_call, actions[:first]), CONFIRMS, *map(_call, actions[first:])]


def _done(wanted: Wanted) -> str:
    figures = ", ".join(wanted["outputs"])
    return f"It is done. {figures} Is there anything else?"


def changes(action: Mapping[str, Any]) -> bool:
    """Whether an expected action changes the database."""
    return str(action["name"]).startswith(CHANGES)


def _call(action: Mapping[str, Any]) -> str:
    call = {"name": action["name"], "arguments": action["arguments"]}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"


def _and(wanted: Wanted, name: str, **arguments: Any) -> list[str]:
    """The expected actions and one more."""
    return [ASKS, *_acts(wanted), _call({"name": name, "arguments": arguments}), _done(wanted)]


def _transfers(wanted: Wanted) -> list[str]:
    summary = "The customer has a wish that I leave to you."
    return [_call({"name": "transfer_to_human_agents", "arguments": {"summary": summary}}), HOLD]


DAMAGES: Mapping[str, Callable[[Wanted, tuple[str, str]], list[str]]] = {
    "cancels another": lambda wanted, other: _and(
        wanted, "cancel_reservation", reservation_id=other[1]
    ),
    "pays too much": lambda wanted, other: _and(
        wanted, "send_certificate", user_id=other[0], amount=100
    ),
    "reads only": lambda wanted, other: [
        ASKS,
        *(_call(one) for one in wanted["actions"] if not changes(one)),
        _done(wanted),
    ],
    "only claims": lambda wanted, other: [ASKS, _done(wanted)],
    "transfers": lambda wanted, other: _transfers(wanted),
}
"""The agents that do damage, or leave the customer's wish undone."""


def all_messages() -> Sequence[str]:
    """Messages that do not depend on a task; the tokenizer learns its words from them."""
    return [ASKS, CONFIRMS, HOLD, _done({"outputs": []})]
