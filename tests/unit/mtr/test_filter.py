"""Which traces teach: each criterion by a trace that it alone refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.offline.collect.criteria import Criterion
from tests.support.recipes import Part
from tests.unit.mtr.conftest import FAILED, FOLDER, OK, REFUSED, answer, call, ran
from toolwright.types import CallOutcome, StopReason, ToolErrorKind, Trajectory

CRITERIA = ("right", "no_errors", "two_to_twelve_calls")
A, B = call("a", x=1), call("b", x=1)
UNKNOWN = CallOutcome(
    observation="",
    valid=False,
    invalid_reason='{"status": "error", "error": {"type": "unknown_tool", "tool": "a"}}',
    error=ToolErrorKind.INVALID_ACTION,
)
ALONE = {
    "right": ran(A, B, answer("Rome")),
    "no_errors": ran(A, B, answer("Paris"), outcomes=[REFUSED]),
    "two_to_twelve_calls": ran(A, answer("Paris")),
    "": ran(A, B, answer("the paris.")),
}
"""By the one criterion that refuses it; the last passes all."""


@pytest.mark.parametrize("criterion", CRITERIA)
def test_each_criterion_refuses_a_trace_that_no_other_does(part: Part, criterion: str) -> None:
    for by, trajectory in ALONE.items():
        assert part(f"filter.{criterion}")(trajectory) is (by != criterion)


@pytest.mark.parametrize("calls", range(15))
def test_both_ends_of_the_lengths_are_kept(part: Part, calls: int) -> None:
    kept = part("filter.two_to_twelve_calls")(ran(*[A] * calls, answer("Paris")))
    assert kept is (2 <= calls <= 12)


@pytest.mark.parametrize(
    ("trajectory", "recovered"),
    [
        (ran(A, B, answer("x")), True),
        (ran(A, A, answer("x"), outcomes=[REFUSED, OK]), True),
        (ran(A, A, A, answer("x"), outcomes=[REFUSED, FAILED, OK]), True),
        (ran(A, B, A, answer("x"), outcomes=[REFUSED, OK, OK]), True),
        (ran(A, B, answer("x"), outcomes=[REFUSED, OK]), False),
        (ran(A, A, answer("x"), outcomes=[OK, REFUSED]), False),
        (ran(A, A, A, answer("x"), outcomes=[REFUSED, OK, FAILED]), False),
        (ran("<tool_call>{</tool_call>", A, answer("x"), outcomes=[REFUSED, OK]), True),
        (ran(A, "<tool_call>{</tool_call>", answer("x"), outcomes=[OK, REFUSED]), False),
        (ran(A, B, answer("x"), outcomes=[UNKNOWN, OK]), True),
        (ran(A, B, answer("x"), outcomes=[OK, UNKNOWN]), False),
        (ran(A, B, answer("x"), outcomes=[UNKNOWN, REFUSED]), False),
        (
            ran(A, B, answer("x"), outcomes=[replace(REFUSED, invalid_reason="[" * 9_999), OK]),
            False,
        ),
        (ran(), True),
    ],
)
def test_an_error_is_mended_by_a_later_call_of_its_tool(
    part: Part, trajectory: Trajectory, recovered: bool
) -> None:
    assert part("filter.errors_recovered")(trajectory) is recovered


def test_what_was_ended_in_error_answers_nothing(part: Part) -> None:
    ended = ran(A, B, answer("Paris"), stop=StopReason.TOOL_EXCEPTION)
    assert part("filter.right")(ended) is False


def test_a_failure_without_a_refusal_is_an_error(part: Part) -> None:
    """The post-check's: the call was good, the observation was not."""
    assert part("filter.no_errors")(ran(A, answer("x"), outcomes=[FAILED])) is False


@pytest.fixture
def keep() -> Callable[[str], Criterion]:
    return lambda name: Criterion(f"./filter.py:{name}", FOLDER, seconds=5.0, threads=1)


@pytest.mark.parametrize("criterion", [*CRITERIA, "errors_recovered"])
async def test_engine_sample_takes_each_by_its_name(
    keep: Callable[[str], Criterion], criterion: str
) -> None:
    named = keep(criterion)
    try:
        assert await named.accepts(ALONE[""]) is True
    finally:
        named.close()
