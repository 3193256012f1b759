"""SEARL's files as modules, as the engine loads them, and trajectories as its parts see them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import Part, part_of
from toolwright.types import (
    Author,
    CallOutcome,
    CallRecord,
    Event,
    Segment,
    Status,
    StopReason,
    Task,
    ToolErrorKind,
    Trajectory,
)
from toolwright.types import Sequence as Tokens

FOLDER = Path(__file__).resolve().parents[3] / "recipes/searl"

PLAN = "##DAG_LIST\n[(ST1, ST2)]\n##ST1: first\n1. square a number\n##ST2: second\n1. add one"


@pytest.fixture(scope="session")
def part() -> Part:
    return part_of(FOLDER)


def step(tool: str, *, subtask: int = 1, **arguments: Any) -> str:
    call = json.dumps({"name": tool, "arguments": arguments})
    return (
        f"<subtask> ST{subtask}: x </subtask><thinking> y </thinking><tool_call>{call}</tool_call>"
    )


def making(name: str, *, subtask: int = 1, **changed: Any) -> str:
    given = {
        "name": name,
        "description": f"what {name} does",
        "arguments": {"n": {"type": "integer"}},
        "code": f"def {name}(n):\n    return n",
        "inputs": {"n": 1},
        **changed,
    }
    return step("create_and_execute", subtask=subtask, **given)


def answering(value: object) -> str:
    return (
        f"<subtask> ST2: x </subtask><thinking> y </thinking><answer> \\boxed{{{value}}} </answer>"
    )


def ran(
    *texts: str,
    errors: Sequence[ToolErrorKind] = (),
    recommended: Sequence[str] = (),
    added: Sequence[str] = (),
    gold: str = "4",
    number: int = 0,
    **fields: Any,
) -> Trajectory:
    """A trajectory that wrote these texts: a plan, then steps. errors: of the steps' calls, in
    order; the rest worked."""
    kinds = iter(errors)
    calls = [
        CallRecord(
            call_id=f"c{turn}",
            turn=turn,
            index=0,
            tool=json.loads(text.partition("<tool_call>")[2].partition("</tool_call>")[0])["name"],
            action=text,
            outcome=CallOutcome(observation="", valid=True, error=next(kinds, ToolErrorKind.NONE)),
        )
        for turn, text in enumerate(texts)
        if "<tool_call>" in text
    ]  # fmt: skip
    events = [
        Event(kind="tools_added", turn=turn, data={"tool": tool, "names": list(names)})
        for turn, (tool, names) in enumerate([("plan", recommended), ("create_and_execute", added)])
        if names
    ]
    segments = tuple(
        Segment(author=Author.MODEL, turn=turn, token_ids=(1,)) for turn, _ in enumerate(texts)
    )
    return Trajectory(
        **{
            "id": f"g-{number}",
            "group_id": "g",
            "task": Task(id="t", answers=(gold,)),
            "sequences": (Tokens(id="s", segments=segments),),
            "status": Status.COMPLETED,
            "stop_reason": StopReason.ANSWERED,
            "calls": tuple(calls),
            "events": tuple(events),
            "metadata": {"texts": list(texts)},
            **fields,
        }
    )
