"""What a trace is worth, by the tiers of its answers and by its repeated calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serving.evaluation.rates import rates_of, shares_of
from tests.support.recipes import Part
from tests.unit.mtr.conftest import FAILED, REFUSED, answer, call, ran
from toolwright.types import Purpose, StopReason, Trajectory

CALL = call(town="Norwick")


def parts(part: Part, trajectory: Trajectory, **options: Any) -> dict[str, float]:
    score = part("score.MtrReward")(**options)(trajectory)
    return {one.name: one.value for one in score.parts}


@pytest.mark.parametrize(
    ("final", "reasoned", "gold", "worth"),
    [
        ("Paris", "paris", "Paris", 1.0),
        ("Barack Obama", "Obama", "Barack Obama", 0.7),
        ("Obama", "Barack Obama", "Barack Obama", 0.7),
        ("Paris", "", "Paris", 0.4),
        ("Paris", "Rome", "Paris", 0.4),
        ("Rome", "Paris", "Paris", 0.4),
        ("Obama", "President Obama", "Barack Obama", 0.0),
        ("Rome", "Oslo", "Paris", 0.0),
        ("", "", "Paris", 0.0),
        ("yes", "yes", ["no", "yes"], 1.0),
    ],
)
def test_the_tiers(part: Part, final: str, reasoned: str, gold: Any, worth: float) -> None:
    trajectory = ran(CALL, answer(final, reasoned), gold=gold)
    assert parts(part, trajectory) == {"answer": worth, "repetition": 0.0}


def test_an_option_pays_nothing_for_reasoning_alone(part: Part) -> None:
    wrong, right = (ran(answer(a, b)) for a, b in (("Rome", "Paris"), ("Paris", "Rome")))
    assert parts(part, wrong, single_final_only=True)["answer"] == 0.0
    assert parts(part, right, single_final_only=True)["answer"] == 0.4


@pytest.mark.parametrize("stop", [StopReason.MAX_TURNS, StopReason.TOOL_EXCEPTION])
def test_what_did_not_end_with_an_answer_has_none(part: Part, stop: StopReason) -> None:
    said = "<think>the answer is Paris.</think>"
    assert parts(part, ran(said + CALL, stop=stop))["answer"] == 0.0
    assert parts(part, ran(CALL, answer("Paris", "Paris"), stop=stop))["answer"] == 0.0
    assert parts(part, ran(stop=stop)) == {"answer": 0.0, "repetition": 0.0}


@pytest.mark.parametrize(
    ("calls", "penalty"),
    [
        ([CALL], 0.0),
        ([CALL, CALL], -0.1),
        ([CALL, call(town="Kanvik"), CALL, CALL], -0.2),
        ([CALL] * 9, -0.5),
        ([call(a=1, b=2), call(b=2, a=1)], -0.1),
        ([call(a=1), call(a="1"), call(a=True), call("other", a=1)], 0.0),
        ([call(a=1), call(a=1.0), call(a=[{"b": 2}]), call(a=[{"b": 2.0}])], -0.2),
        ([call(a=1.5), call(a=1), call(a=1e300), call(a=float(2**53)), call(a=2**53 + 1)], 0.0),
        (["<tool_call>{</tool_call>"] * 2, -0.1),
        (["so <tool_call>{</tool_call>", "and <tool_call>{</tool_call>"], -0.1),
        (["one</tool_call>", "two</tool_call>"], 0.0),
        (["<tool_call>{</tool_call>", "<tool_call>[</tool_call>"], 0.0),
        ([call(a=float("nan"))] * 2, -0.1),
        (["<tool_call>" + "[" * 50_000 + "</tool_call>"] * 2, -0.1),
    ],
)
def test_equal_calls_cost(part: Part, calls: list[str], penalty: float) -> None:
    trajectory = ran(*calls, answer("Rome"))
    assert parts(part, trajectory)["repetition"] == pytest.approx(penalty)
    free = parts(part, trajectory, per_repeat=0.0)["repetition"]
    assert (free, str(free)) == (0.0, "0.0"), "no minus before a nought"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tiers": {"partial": 1.0}}, "perfect > partial > single > none"),
        ({"tiers": {"none": 0.5}}, "perfect > partial > single > none"),
        ({"tiers": {"single": float("nan")}}, "single"),
        ({"tiers": {"perfect": "1"}}, "perfect"),
        ({"tiers": {"perfect": True}}, "perfect"),
        ({"tiers": {"soft": 0}}, "soft"),
        ({"tiers": {"soft": 1.5}}, "soft"),
        ({"tiers": {"best": 1.0}}, "best"),
        ({"per_repeat": -0.1}, "per_repeat"),
        ({"cap": float("inf")}, "cap"),
    ],
)
def test_what_is_no_ladder_is_refused_at_the_start(
    part: Part, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        part("score.MtrReward")(**options)


@given(
    final=st.none() | st.text(max_size=20),
    reasoned=st.none() | st.text(max_size=20),
    golds=st.lists(st.text(max_size=10), max_size=3),
)
def test_a_worth_is_always_a_tier(part: Part, final: Any, reasoned: Any, golds: Any) -> None:
    tiers = part("rewards.Tiers")()
    worth = part("rewards.answer_score")(final, reasoned, golds, tiers)
    assert worth in (1.0, 0.7, 0.4, 0.0)
    strict = part("rewards.answer_score")(final, reasoned, golds, tiers, single_final_only=True)
    assert strict <= worth


def test_an_evaluation_is_exact_match_with_figures_beside_it(part: Part) -> None:
    trajectory = ran(
        CALL,
        call(town="x"),
        answer("Paris", "Rome"),
        outcomes=[REFUSED],
        purpose=Purpose.EVAL,
    )
    score = part("score.MtrReward")()(trajectory)
    assert score.reward == 1.0
    assert {one.name: one.value for one in score.parts} == {
        "answer": 1.0, "f1": 1.0, "calls": 2.0, "erred": 1.0,
    }  # fmt: skip
    assert rates_of(score.events) == {
        "malformed": [1, 2], "disagreement": [1, 1], "recovered": [1, 1],
    }  # fmt: skip
    assert shares_of(score.events) == ["disagreement", "malformed", "recovered"]
    nothing = part("score.MtrReward")()(ran(purpose=Purpose.EVAL, stop=StopReason.EMPTY_OUTPUT))
    assert {one.value for one in nothing.parts} == {0.0}
    assert set(map(tuple, rates_of(nothing.events).values())) == {(0, 0)}


def test_figures_that_mean_nothing_are_left_out(part: Part) -> None:
    def figures(trajectory: Trajectory) -> Any:
        (event,) = part("score.MtrReward")()(trajectory).events
        assert event.kind == "measured"
        return event.data

    assert figures(ran(answer("Paris"))) == {"right": 1.0, "calls": 0.0}
    failed = figures(ran(CALL, answer("Rome", "Rome"), outcomes=[FAILED]))
    assert failed == {
        "right": 0.0, "calls": 1.0, "malformed": 0.0, "disagreement": 0.0, "recovered": 0.0,
    }  # fmt: skip
