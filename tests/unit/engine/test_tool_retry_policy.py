"""When a request to a tool service is sent again, driven by numbers."""

from __future__ import annotations

import random
from itertools import pairwise

import grpc
import pytest

from engine.core.tools.link.retry_policy import (
    LONGEST_PAUSE,
    SHORTEST_PAUSE,
    WHILE_AWAY,
    FailureKind,
    RetryPolicy,
    failure_kind,
    failure_name,
)
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError, TransportError


@pytest.fixture(autouse=True)
def whole_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No jitter: each pause is its longest."""
    monkeypatch.setattr(random, "uniform", lambda _low, high: high)


def policy(seconds: float) -> RetryPolicy:
    return RetryPolicy(seconds)


def outlast(one: RetryPolicy, kind: FailureKind, until: float, took: float = 0.0) -> list[float]:
    """Times of the tries from 0 on, each of which takes so long and fails."""
    times, now = [0.0], took
    while (pause := one.after(kind, now)) is not None and now < until:
        times.append(now + pause)
        now += pause + took
    return times


def test_a_service_that_is_away_is_tried_for_a_time_and_not_for_a_number_of_tries() -> None:
    times = outlast(policy(300), FailureKind.AWAY, until=1e9)
    assert times[-1] == pytest.approx(300)
    assert len(times) > 60
    pauses = [later - sooner for sooner, later in pairwise(times)]
    assert pauses[:4] == pytest.approx([0.05, 0.1, 0.2, 0.4])
    assert max(pauses) == pytest.approx(WHILE_AWAY.longest)


def test_the_time_begins_with_the_first_failure_not_with_the_request() -> None:
    """A call may have run for minutes before its service died."""
    one = policy(10)
    assert one.after(FailureKind.AWAY, 1000.0) is not None
    assert one.after(FailureKind.AWAY, 1009.9) is not None
    assert one.after(FailureKind.AWAY, 1010.1) is None


def test_tries_that_take_long_themselves_use_the_time_up() -> None:
    times = outlast(policy(300), FailureKind.AWAY, until=1e9, took=35.0)
    assert 8 <= len(times) <= 11


def test_an_answer_begins_a_new_time() -> None:
    one = policy(10)
    one.after(FailureKind.AWAY, 0.0)
    one.answered()
    assert one.after(FailureKind.AWAY, 100.0) == pytest.approx(0.05)
    assert one.after(FailureKind.AWAY, 109.0) is not None


def test_a_service_that_is_full_is_waited_for_as_long_as_it_takes() -> None:
    times = outlast(policy(1), FailureKind.FULL, until=100_000)
    assert times[-1] >= 100_000
    assert max(later - sooner for sooner, later in pairwise(times)) < 1.01


def test_who_is_full_is_there() -> None:
    one = policy(10)
    one.after(FailureKind.AWAY, 0.0)
    one.after(FailureKind.FULL, 9.0)
    assert one.after(FailureKind.AWAY, 15.0) is not None


@pytest.mark.parametrize("kind", [FailureKind.MOVED, FailureKind.LOST, FailureKind.REFUSED])
def test_what_would_be_answered_the_same_is_given_up(kind: FailureKind) -> None:
    assert policy(300).after(kind, 0.0) is None


@pytest.mark.parametrize(
    ("word", "pause"),
    [
        (2.0, 2.0),
        (0.0, 0.05),
        (-5.0, 0.05),
        (1e12, LONGEST_PAUSE),
        (float("nan"), LONGEST_PAUSE),
    ],
)
def test_a_service_may_ask_for_a_pause_within_reason(word: float, pause: float) -> None:
    """Neither a hot loop nor a wait without end."""
    found = policy(300).after(FailureKind.FULL, 0.0, word)
    assert found is not None
    assert SHORTEST_PAUSE <= found <= LONGEST_PAUSE
    if word == word:
        assert found == pytest.approx(pause)


def test_no_patience_is_no_second_try() -> None:
    assert policy(0).after(FailureKind.AWAY, 5.0) is None


def test_pauses_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands that fail at one moment do not come back at one."""
    monkeypatch.undo()
    assert len({RetryPolicy(300).after(FailureKind.AWAY, 0.0) for _ in range(50)}) > 40


def transport(code: grpc.StatusCode) -> TransportError:
    return TransportError(code, "")


def refusal(name: str, **how: object) -> ServiceError:
    reason = reasons.ErrorReason.Value(f"ERROR_REASON_{name}")
    return ServiceError(reason, "why", **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "kind", "name"),
    [
        (transport(grpc.StatusCode.UNAVAILABLE), FailureKind.AWAY, "UNAVAILABLE"),
        (transport(grpc.StatusCode.DEADLINE_EXCEEDED), FailureKind.AWAY, "DEADLINE_EXCEEDED"),
        (transport(grpc.StatusCode.CANCELLED), FailureKind.AWAY, "CANCELLED"),
        (transport(grpc.StatusCode.RESOURCE_EXHAUSTED), FailureKind.REFUSED, None),
        (transport(grpc.StatusCode.UNAUTHENTICATED), FailureKind.REFUSED, None),
        (refusal("DRAINING"), FailureKind.AWAY, "DRAINING"),
        (refusal("BACKEND_DOWN"), FailureKind.REFUSED, "BACKEND_DOWN"),
        (refusal("BACKEND_DOWN", retry_after=1.0), FailureKind.AWAY, "BACKEND_DOWN"),
        (refusal("INTERNAL"), FailureKind.REFUSED, "INTERNAL"),
        (refusal("INTERNAL", retry_after=1.0), FailureKind.AWAY, "INTERNAL"),
        (refusal("QUEUE_LIMIT", retry_after=0.0), FailureKind.FULL, "QUEUE_LIMIT"),
        (refusal("QUEUE_LIMIT"), FailureKind.REFUSED, "QUEUE_LIMIT"),
        (refusal("TOO_MANY_SESSIONS", retry_after=1.0), FailureKind.FULL, None),
        (refusal("SESSION_NOT_FOUND"), FailureKind.LOST, None),
        (refusal("SESSION_LOST", retry_after=1.0), FailureKind.LOST, None),
        (refusal("WRONG_ENDPOINT", endpoint="x:1"), FailureKind.MOVED, None),
        (refusal("WRONG_ENDPOINT"), FailureKind.REFUSED, None),
        (ServiceError(12345, "why"), FailureKind.REFUSED, "REASON_12345"),
    ],
)
def test_what_a_failure_says_of_the_service(
    error: ServiceError | TransportError, kind: FailureKind, name: str | None
) -> None:
    assert failure_kind(error) is kind
    assert failure_name(error) == (name or failure_name(error))
    assert str(error)
