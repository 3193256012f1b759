"""What looking is worth in a group: VerlTool's equations 9 to 11."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.recipes import Part
from tests.unit.vt_visual.conftest import BROKEN, REFUSED, look, looked
from toolwright.types import Status, StopReason, Trajectory

LOOK, ANSWER = look(), "\\boxed{7}"
GUESS = looked(ANSWER)
ONCE = looked(LOOK, ANSWER)
FAILED = looked(status=Status.ERRORED, stop=StopReason.INFRASTRUCTURE_ERROR)


async def paid(part: Part, group: Sequence[Trajectory], **options: Any) -> list[Any]:
    """(curiosity, looking) of each member; None where it got no score."""
    scores = await part("curiosity.Curiosity")(**options)(group)
    return [
        None if score is None else tuple(round(one.value, 9) for one in score.parts)
        for score in scores
    ]


async def test_the_one_of_four_that_looks_is_paid(part: Part) -> None:
    assert await paid(part, [ONCE, GUESS, GUESS, GUESS]) == [(0.025, 0), (0, 0), (0, 0), (0, 0)]


async def test_nobody_is_paid_where_nobody_looks(part: Part) -> None:
    assert await paid(part, [GUESS] * 4) == [(0, 0)] * 4


@pytest.mark.parametrize("users", [2, 3, 4])
async def test_nobody_is_paid_where_enough_look(part: Part, users: int) -> None:
    assert await paid(part, [ONCE] * users + [GUESS] * (4 - users)) == [(0, 0)] * 4


async def test_failed_rollouts_stand_in_the_denominator(part: Part) -> None:
    """Of the three that are left one looked, a third: without the failed one nobody was paid."""
    assert await paid(part, [ONCE, GUESS, GUESS]) == [(0, 0)] * 3
    assert await paid(part, [ONCE, GUESS, GUESS, FAILED]) == [(0.025, 0), (0, 0), (0, 0), None]


async def test_a_failed_rollout_that_had_looked_is_one_that_looked(part: Part) -> None:
    failed = looked(LOOK, status=Status.ERRORED, stop=StopReason.SESSION_LOST)
    assert await paid(part, [ONCE, failed, GUESS, GUESS]) == [(0, 0), None, (0, 0), (0, 0)]
    assert await paid(part, [GUESS, failed, GUESS, GUESS]) == [(0, 0), None, (0, 0), (0, 0)]


@pytest.mark.parametrize(("count", "cost"), [(0, 0), (1, 0), (2, -0.05), (3, -0.1), (9, -0.4)])
async def test_looks_beyond_the_first_cost(part: Part, count: int, cost: float) -> None:
    often = looked(*[LOOK] * count, ANSWER)
    assert (await paid(part, [often, ONCE, ONCE, ONCE]))[0] == (0, cost)


@pytest.mark.parametrize("outcome", [REFUSED, BROKEN])
async def test_what_showed_nothing_is_no_look(part: Part, outcome: Any) -> None:
    tried = looked(LOOK, LOOK, LOOK, ANSWER, outcomes=[outcome] * 3)
    assert await paid(part, [tried, GUESS, GUESS, GUESS]) == [(0, 0)] * 4


async def test_calls_of_other_tools_are_no_looks(part: Part) -> None:
    python = looked(LOOK, LOOK, ANSWER, tool="python")
    assert await paid(part, [python, GUESS, GUESS, GUESS]) == [(0, 0)] * 4
    renamed = await paid(part, [python, GUESS, GUESS, GUESS], tool="python")
    assert renamed[0] == (0.025, -0.05)


async def test_accuracy_alone_is_two_zeros(part: Part) -> None:
    often = looked(LOOK, LOOK, ANSWER)
    group = [often, GUESS, GUESS, GUESS]
    assert await paid(part, group, curiosity=0.0, cost=0.0) == [(0, 0)] * 4


async def test_the_rate_is_told_once_of_every_member(part: Part) -> None:
    scores = await part("curiosity.Curiosity")()([ONCE, GUESS, GUESS, FAILED])
    rates = [score and score.events[0].data for score in scores]
    assert rates == [{"rapr": 0.25}, {"rapr": 0.25}, {"rapr": 0.25}, None]


async def test_running_twice_is_the_same(part: Part) -> None:
    hook = part("curiosity.Curiosity")()
    assert await hook([ONCE, GUESS]) == await hook([ONCE, GUESS])


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_terms_have_their_bounds(part: Part, counts: list[int]) -> None:
    rate = part("rewards.looking_rate")(counts)
    assert 0 <= rate <= 1
    assert (rate == 0) is not any(counts)
    looking = part("rewards.Looking")()
    for count in counts:
        bonus, cost = part("rewards.looking_reward")(count, rate, looking)
        assert 0 <= bonus <= 0.5 * 0.3
        assert bonus == 0 or count
        assert cost == (-0.05 * (count - 1) if count > 1 else 0)


def test_no_rollouts_have_no_rate(part: Part) -> None:
    assert part("rewards.looking_rate")([]) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"rate": -0.1},
        {"rate": 1.1},
        {"rate": float("nan")},
        {"free": -1},
        {"curiosity": -0.5},
        {"cost": float("inf")},
        {"cost": float("nan")},
    ],
)
def test_values_out_of_bounds_are_refused(part: Part, options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        part("curiosity.Curiosity")(**options)
