"""`bench study step-credit`: which steps are right, which pairs count, and the page's table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.studies.step_credit import CREDITS, MarketStep, pairs, steps_of, table
from tests.support.finished_trajectories import trajectory
from toolwright import types as t
from toolwright.imports import load_file
from toolwright.process.packaged import packaged

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[4]
MARKET = load_file(packaged("recipes") / "searl/market/task.py")
CODE = "def beans_to_coins(n):\n    return n * 5 + 1"


def call(name: str, amount: int, result: int, turn: int = 1, *, made: bool = False) -> t.CallRecord:
    inputs = {"n": amount}
    given = {"name": name, "code": CODE, "inputs": inputs} if made else inputs
    said = {"name": "create_and_execute" if made else name, "arguments": given}
    return t.CallRecord(
        call_id=f"c{turn}",
        turn=turn,
        index=0,
        tool="market",
        action=f"<tool_call>{json.dumps(said)}</tool_call>",
        outcome=t.CallOutcome(observation=json.dumps({"execution_result": result}), valid=True),
    )


def steps(*calls: t.CallRecord, question: str) -> list[MarketStep]:
    task = t.Task(id="q", messages=({"role": "user", "content": question},))
    return list(steps_of(0, trajectory(task=task, calls=calls), MARKET))


def test_a_tool_is_right_by_its_result_for_a_swap_of_the_question() -> None:
    question = "Swap 45 beans for coins, and those for dates."
    found = steps(
        call("beans_to_coins", 45, 226, 1, made=True),
        call("dates_from_coins", 226, 453, 2),
        call("coins_to_dates", 226, 679, 3),
        call("jars_from_inks", 4, 9, 4),
        question=question,
    )
    assert [(one.turn, one.good, one.right) for one in found] == [
        (1, "beans", True),
        (2, "coins", True),
        (3, "coins", False),  # the rate is another
        (4, "inks", False),  # right, but nobody asked
    ]


def test_a_call_of_another_tool_is_no_step() -> None:
    assert steps(call("plan", 4, 9), question="Swap 45 beans for coins.") == []


def test_pairs_count_by_kind_and_a_tie_is_a_half() -> None:
    right = MarketStep(trajectory=0, turn=1, good="beans", right=True, ran=True)
    same = MarketStep(trajectory=1, turn=1, good="beans", right=False, ran=True)
    other = MarketStep(trajectory=1, turn=2, good="coins", right=False, ran=True)
    failed = MarketStep(trajectory=2, turn=1, good="beans", right=False, ran=False)
    values = [[0.0, 1.0], [0.0, 1.0, 2.0], [0.0, 0.0]]
    assert list(pairs([right, same, other, failed], values)) == [
        ("all", 0.5),
        ("ran", 0.5),
        ("one swap", 0.5),
        ("all", 0.0),
        ("ran", 0.0),
        ("all", 1.0),
    ]


def test_the_figures_have_every_credit() -> None:
    figures = json.loads((ROOT / "bench/results/step-credit.json").read_text(encoding="utf-8"))
    assert {row["credit"] for row in figures["rows"]} == set(CREDITS)
    assert all(name in table(figures) for name in CREDITS)
