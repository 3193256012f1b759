"""The methods as the engine loads them, and a conversation with one: a scripted policy, a toy
search tool, and everything that the policy reads as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.types import Answer, Calls, Decision, End, Say, ToolSpec, View
from tests.support.codecs import END, ToyCodec
from tests.support.recipes import Part, part_of
from toolwright.types import Author, CallOutcome, CallRecord, StopReason, Task

FOLDER = Path(__file__).resolve().parents[3] / "recipes/prompting"
CODEC = ToyCodec()
SEARCH = ToolSpec(
    name="search",
    stop_strings=("</search>",),
    open_tag="<search>",
    close_tag="</search>",
    argument="query",
)
QUESTION = "Where was Maret Holm born?"


@pytest.fixture(scope="session")
def part() -> Part:
    return part_of(FOLDER)


def view(turn: int = 0, calls: int = 0, question: str = QUESTION) -> View:
    outcome = CallOutcome(observation="", valid=True)
    record = CallRecord(call_id="c", turn=0, index=0, tool="search", action="", outcome=outcome)
    return View(
        task=Task(id="t", prompt=question),
        turn=turn,
        actions=("x",) * turn,
        calls=(record,) * calls,
        events=(),
        tools=(SEARCH,),
    )


class Talk:
    """What the policy read and wrote. queries: what was searched for; ended: how it went out."""

    def __init__(self, protocol: Any, replies: Sequence[str], turns: int = 12) -> None:
        self.queries: list[str] = []
        self.refused: list[str] = []
        self.ended: Answer | End | None = None
        task = Task(id="t", prompt=QUESTION)
        self.text = CODEC.decode(protocol.prompt(task, (SEARCH,), CODEC))
        self.prompt = self.text
        actions: list[str] = []
        calls: list[CallRecord] = []
        for turn, reply in enumerate(replies):
            action, stop = first_stop(reply, protocol.stops((SEARCH,), CODEC))
            self.text += action
            seen = View(
                task=task,
                turn=turn,
                actions=tuple(actions),
                calls=tuple(calls),
                events=(),
                tools=(SEARCH,),
            )
            decision: Decision = protocol.decide(action, stop, seen, CODEC)
            actions.append(action)
            if isinstance(decision, Answer | End):
                self.ended = decision
                return
            if turn >= turns:
                self.ended = End(reason=StopReason.MAX_TURNS)
                return
            author, said = self._answered(decision, turn, calls)
            head, tail = protocol.frame(stop, CODEC, author)
            body = protocol.observation([said], CODEC)
            self.text += CODEC.decode([*head, *body, *tail])

    def _answered(
        self, decision: Say | Calls, turn: int, calls: list[CallRecord]
    ) -> tuple[Author, str]:
        if isinstance(decision, Say):
            return decision.author, decision.text
        (call,) = decision.calls
        if call.invalid_reason:
            self.refused.append(call.invalid_reason)
            said = call.invalid_reason
        else:
            assert call.tool == "search"
            assert call.arguments is not None
            self.queries.append(call.arguments["query"])
            said = f"Doc {len(self.queries)}"
        outcome = CallOutcome(observation=said, valid=not call.invalid_reason)
        calls.append(
            CallRecord(
                call_id=f"c{turn}", turn=turn, index=0, tool="search", action="", outcome=outcome
            )
        )
        return Author.TOOL, said


def first_stop(reply: str, stops: Sequence[str]) -> tuple[str, str]:
    """A reply up to the stop that comes first, and that stop; one without any ends its turn."""
    found = [(reply.find(stop) + len(stop), stop) for stop in stops if stop in reply]
    end, stop = min(found, default=(0, ""))
    return (reply[:end], stop) if stop else (reply + END, END)
