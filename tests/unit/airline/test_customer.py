"""The scripted customer: rules over a task's instructions, and the protocol that asks them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.types import Answer, Calls, Say
from tests.support.codecs import END, ToyCodec
from tests.support.recipes import part_of
from tests.support.views import view_of
from toolwright.types import CallOutcome, CallRecord, Task

pytestmark = pytest.mark.quick

PART = part_of(Path(__file__).resolve().parents[3] / "recipes/airline")
CODEC = ToyCodec()
INSTRUCTIONS = {
    "reason_for_call": "You want to cancel your reservation AB12CD.\n\nBe quick.",
    "known_info": "You are Ada Holm.\n\nYour user id is ada_holm_12.",
    "unknown_info": None,
    "task_instructions": (
        "If the agent says that it is not possible,\nmention that you were told otherwise.\n\n"
        "You are persistent.\n\nYou want the agent to tell you the refund."
    ),
}
FACTS = "I am Ada Holm. My user id is ada_holm_12."
PROTEST = "I was told otherwise."
WISH = "I want you to tell me the refund."
LAST = PART("customer.LAST")
YES = PART("customer.YES")


def test_the_opening_is_the_reason_in_the_first_person() -> None:
    assert PART("customer.opening")(INSTRUCTIONS) == "I want to cancel my reservation AB12CD."


@pytest.mark.parametrize(
    ("said", "message", "reply"),
    [
        ((), "What is your user id?", FACTS),
        ((FACTS,), "I will cancel AB12CD. Do you confirm?", YES),
        ((FACTS,), "Unfortunately that is not possible.", PROTEST),
        ((FACTS, PROTEST), "I cannot do that.", WISH),
        ((FACTS, PROTEST, WISH), "What is the weather like?", LAST),
        ((FACTS, WISH), "It is cancelled. Is there anything else?", None),
        ((), "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON.", None),
    ],
)
def test_a_rule_gives_the_reply(said: tuple[str, ...], message: str, reply: str | None) -> None:
    assert PART("customer.reply")(INSTRUCTIONS, said, message) == reply


def decided(text: str, *actions: str, called: tuple[int, ...] = ()) -> Any:
    """The decision on an action after `actions`, of which those of the turns `called` called."""
    outcome = CallOutcome(observation="", valid=True)
    calls = [
        CallRecord(call_id=f"c{turn}", turn=turn, index=0, tool="t", action="", outcome=outcome)
        for turn in called
    ]
    seen = view_of(actions=actions, calls=calls)
    seen = replace(seen, task=Task(id="t", metadata={"customer": INSTRUCTIONS}))
    stop = "</tool_call>" if text.endswith("</tool_call>") else END
    return PART("protocol.ServiceDesk")().decide(text, stop, seen, CODEC)


def test_a_message_is_answered_and_a_call_is_called() -> None:
    assert decided(f"Your user id?{END}") == Say(text=FACTS)
    call = '<tool_call>{"name": "t", "arguments": {}}</tool_call>'
    assert isinstance(decided(call), Calls)


def test_the_customer_remembers_its_replies_by_the_earlier_messages() -> None:
    """Actions with a call are not messages, and thoughts are never heard."""
    call = "<tool_call>your user id?</tool_call>"
    thought = f"<think>I refuse: not possible</think>Your user id?{END}"
    assert decided(f"It is done.{END}", call, called=(0,)) == Say(text=WISH)
    assert decided(f"It is done.{END}", thought, call, called=(1,)) == Say(text=WISH)
    end = decided(f"It is done.{END}", thought, f"It is done.{END}")
    assert end == Answer(text="It is done.")
