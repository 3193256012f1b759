"""What a trajectory's steps are worth, by its events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chat_endpoint import chat_endpoint
from tests.support.recipes import Part
from tests.unit.searl.conftest import PLAN, answering, making, ran, step
from toolwright.types import Purpose, Task, ToolErrorKind, Trajectory

FAILED = ToolErrorKind.EXCEPTION

Parts = dict[tuple[str, int | None], float]

UNKNOWN = ToolErrorKind.UNKNOWN_TOOL
INVALID = ToolErrorKind.INVALID_ACTION


def parts(part: Part, trajectory: Trajectory, **options: Any) -> Parts:
    scored = asyncio.run(part("score.SearlReward")(**options)(trajectory))
    found = [((one.name, one.turn), one.value) for one in scored.parts]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_a_right_course(part: Part) -> None:
    trajectory = ran(PLAN, making("f"), step("f", n=4), answering(4), added=["f"])
    assert parts(part, trajectory) == {
        ("answer", None): 1.0,
        ("plan", 0): 0.1,
        ("format", 1): 0.1,
        ("create", 1): 0.1,
        ("execute", 1): 0.1,
        ("format", 2): 0.1,
        ("execute", 2): 0.1,
        ("format", 3): 0.1,
    }


@pytest.mark.parametrize(
    ("texts", "errors", "expected"),
    [
        ((making("f"),), (FAILED,), {("create", 1): 0.1, ("execute", 1): -0.1}),
        ((making("f"),), (INVALID,), {("create", 1): -0.1}),
        ((making("f", code="def g(n): pass"),), (FAILED,), {("create", 1): -0.1}),
        ((making("f", code="def f(m): pass"),), (FAILED,), {("create", 1): -0.1}),
        ((making("f", code="def f(n, *more): pass"),), (FAILED,), {("create", 1): -0.1}),
        ((making("f", code="async def f(n): pass"),), (FAILED,), {("create", 1): -0.1}),
        ((making("f", code="(" * 10_000),), (FAILED,), {("create", 1): -0.1}),
        ((making("class"),), (FAILED,), {("create", 1): -0.1}),
        ((making("f", code=3),), (FAILED,), {("create", 1): -0.1}),
        ((making("f", arguments="{"),), (FAILED,), {("create", 1): -0.1}),
        ((step("f", n=1),), (UNKNOWN,), {("execute", 1): -0.1}),
        (
            (step("python", code="1"), step("python", code="1")),
            (),
            {("execute", 1): 0.1, ("execute", 2): 0.1, ("redundant", 2): -0.05},
        ),
    ],
)
def test_events(
    part: Part,
    texts: tuple[str, ...],
    errors: tuple[ToolErrorKind, ...],
    expected: dict[tuple[str, int], float],
) -> None:
    found = parts(part, ran(PLAN, *texts, answering(5), errors=errors))
    assert found.pop(("answer", None)) == 0.0
    rest = {key: value for key, value in found.items() if key[0] not in ("plan", "format")}
    assert rest == expected


def test_a_tool_is_made_once(part: Part) -> None:
    """To make it again is a call of it."""
    trajectory = ran(PLAN, making("f"), making("f", inputs={"n": 2}), answering(4), added=["f"])
    found = parts(part, trajectory)
    assert ("create", 1) in found and ("create", 2) not in found
    assert found[("execute", 2)] == 0.1


def test_no_plan_and_the_strict_preset(part: Part) -> None:
    trajectory = ran("I cannot.", making("f"), answering(5), errors=[INVALID])
    assert parts(part, trajectory)[("plan", 0)] == -0.05
    strict = parts(part, trajectory, strict=True)
    assert strict[("create", 1)] == -0.2
    assert strict[("answer", None)] == -1.0
    assert parts(part, trajectory, step_rewards=False) == {("answer", None): 0.0}
    changed = parts(part, trajectory, weights={"plan_fail": -1.0})
    assert changed[("plan", 0)] == -1.0


def test_the_released_code_pays_for_parsing(part: Part) -> None:
    trajectory = ran(PLAN, making("f"), step("f"), answering(4), errors=[FAILED, FAILED])
    found = parts(part, trajectory, mode="released")
    assert found[("step", 1)] == pytest.approx(0.2)  # made, whatever came of it
    assert found[("step", 2)] == pytest.approx(0.1)
    assert found[("answer", None)] == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"weights": {"exec": 1.0}}, "plan_ok, plan_fail"),
        ({"mode": "paper2"}, "mode"),
        ({"judge": "model"}, "judge"),
        ({"max_subtask": 3}, "max_subtask"),
    ],
)
def test_options_that_do_not_fit(part: Part, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        part("score.SearlReward")(**options)


TEXTS = st.lists(
    st.one_of(
        st.text(),
        st.just(making("f")),
        st.just(answering(4)),
        st.text(alphabet='<>/subtaskhinkg_cl{}[]"\\:,ST1 \n'),
    ),
    max_size=5,
)


@given(TEXTS)
def test_whatever_a_policy_writes_has_a_score(part: Part, texts: list[str]) -> None:
    score = part("score.SearlReward")()
    trajectory = ran(*(text for text in texts if text == making("f") or "<tool_call>" not in text))
    scored = asyncio.run(score(trajectory))
    assert all(-2 < one.value < 2 for one in scored.parts)
    assert all(one.turn is None or one.turn < max(1, trajectory.turns) for one in scored.parts)


@pytest.mark.parametrize("mode", ["paper", "released"])
@pytest.mark.parametrize(
    ("answer", "gold", "options", "right"),
    [
        ("4", "4.00001", {}, True),
        ("The Eiffel Tower.", "eiffel tower", {}, True),
        ("50%", "50", {"judge": "words"}, True),
        ("1/2", "12", {}, False),
        ("1/2", "12", {"judge": "words"}, False),
        ("(-1,2)", "(1,2)", {}, False),
        ("-3", "3", {"judge": "math"}, False),
        ("1+x", "x+1", {}, True),
        (r"\frac12", "0.5", {}, True),
        ("", "the", {}, False),
    ],
)
def test_an_answer_is_compared_by_its_judge(
    part: Part, mode: str, answer: str, gold: str, options: dict[str, Any], right: bool
) -> None:
    trajectory = ran(PLAN, answering(answer), gold=gold)
    found = parts(part, trajectory, mode=mode, **options)
    assert (found[("answer", None)] > 0) is right


def evaluated(answer: str, gold: str, **metadata: object) -> Trajectory:
    question = ({"role": "user", "content": [{"type": "text", "text": "How large?"}]},)
    task = Task(id="t", answers=(gold,), purpose=Purpose.EVAL, messages=question, metadata=metadata)
    return ran(PLAN, answering(answer), task=task)


@pytest.mark.parametrize(
    "options", [{}, {"strict": True}, {"mode": "released"}, {"right": 5.0, "wrong": -2.0}]
)
@pytest.mark.parametrize(
    ("answer", "gold", "worth", "beside"),
    [
        ("4", "4", 1.0, (1.0, 1.0)),
        ("5", "4", 0.0, (0.0, 0.0)),
        ("the lake of Chad", "Lake Chad", 0.0, (0.0, 0.8)),
        (r"\frac12", "0.5", 1.0, (0.0, 0.0)),
    ],
)
async def test_an_evaluation_is_plain_accuracy_whatever_the_training_reward(
    part: Part,
    options: dict[str, Any],
    answer: str,
    gold: str,
    worth: float,
    beside: tuple[float, float],
) -> None:
    scored = await part("score.SearlReward")(**options)(evaluated(answer, gold))
    assert scored.total == worth
    found = {one.name: one.value for one in scored.parts}
    assert found == {"answer": worth, "em": beside[0], "f1": pytest.approx(beside[1])}


@pytest.mark.parametrize(
    ("reply", "worth", "unparsable"), [("1", 1.0, 0.0), ("0", 0.0, 0.0), ("<think>1", 0.0, 1.0)]
)
async def test_a_model_judges_evaluations_alone(
    part: Part, reply: str, worth: float, unparsable: float
) -> None:
    async with chat_endpoint(lambda _: reply) as endpoint:
        opinion = {"endpoint": endpoint.url, "model": "judge", "tries": 1}
        score = part("score.SearlReward")(opinion=opinion)
        trained = await score(ran(PLAN, answering(4)))
        assert (trained.parts[0].value, endpoint.requests) == (1.0, [])
        scored = await score(evaluated("5", "4"))
    found = {one.name: one.value for one in scored.parts}
    assert found == {"answer": worth, "em": 0.0, "f1": 0.0, "unparsable": unparsable}
    (request,) = endpoint.requests
    assert "How large?\n" in request["messages"][0]["content"]
