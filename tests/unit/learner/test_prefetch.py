"""What was leased ahead is taken where it is what the step wants, and asked for anew elsewhere."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from learner.errors import EngineError, TakenError
from learner.intake.prefetch import Prefetch
from toolwright.types import Group, WeightVersion

V1, V2 = (WeightVersion(lineage="a", step=step) for step in (1, 2))
EARLY, LATE = Group(id="early", trajectories=()), Group(id="late", trajectories=())
WANTED: dict[str, Any] = {"after": 3, "count": 1, "version": V1, "wait": 20.0}


class Client:
    """An engine that had `early` when it was asked ahead, and has `late` now."""

    def __init__(self, early: list[Group] | Exception) -> None:
        self.early: Future[list[Group]] = Future()
        if isinstance(early, Exception):
            self.early.set_exception(early)
        else:
            self.early.set_result(early)

    def begin_lease(self, **_asked: Any) -> Future[list[Group]]:
        return self.early

    def lease(self, **_asked: Any) -> list[Group]:
        return [LATE]


def leased(client: Client, **changes: Any) -> list[Group]:
    ahead = Prefetch(client)  # type: ignore[arg-type]
    ahead.begin(**WANTED)
    return ahead.lease(**{**WANTED, **changes})


def test_what_was_begun_for_this_step_is_taken() -> None:
    assert leased(Client([EARLY])) == [EARLY]


@pytest.mark.parametrize("changes", [{"after": 4}, {"version": V2}])
def test_what_was_begun_for_another_is_not(changes: dict[str, Any]) -> None:
    assert leased(Client([EARLY]), **changes) == [LATE]


def test_a_lease_that_ended_empty_says_nothing_of_now() -> None:
    """It was one poll, which may have ended while the step trained for minutes."""
    assert leased(Client([])) == [LATE]


def test_a_lease_that_failed_is_asked_for_again() -> None:
    assert leased(Client(EngineError("gone"))) == [LATE]


def test_a_run_that_was_taken_is_not() -> None:
    with pytest.raises(TakenError, match="taken"):
        leased(Client(TakenError("taken")))
