"""Figures: each is what its name says, and the parts add up."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest

from bench.measuring.spread import Spread
from bench.tools.load.fleet import Shot
from bench.tools.reading.figures import Figures
from tests.support.shots import HELLO, shot, window


def test_percentiles_are_values_that_were_measured() -> None:
    spread = Spread.of([float(number) for number in range(200, 0, -1)])
    assert spread == Spread(min=1, avg=100.5, p50=100, p90=180, p99=198, max=200)
    assert Spread.of([7.0]) == Spread(min=7, avg=7, p50=7, p90=7, p99=7, max=7)


def test_a_median_is_taken_figure_by_figure() -> None:
    spreads = [Spread.of(values) for values in ([1.0, 9.0], [2.0, 4.0], [3.0, 100.0])]
    assert Spread.median_of(spreads).min == 2.0
    assert Spread.median_of(spreads).max == 9.0


def test_latency_is_wire_and_queue_and_run() -> None:
    found = Figures.of([window(shot(10, queued=3, ran=5), shot(6, queued=1, ran=1))], checked=True)
    assert found.latency.avg == pytest.approx(8)
    assert (found.queue.avg, found.run.avg) == (pytest.approx(2), pytest.approx(3))
    assert found.wire.avg + found.queue.avg + found.run.avg == pytest.approx(found.latency.avg)


def test_a_client_that_is_late_hides_nothing() -> None:
    found = Figures.of([window(shot(10, late=7))], checked=True)
    assert found.latency.max == pytest.approx(10)
    assert found.late.max == pytest.approx(7)


def test_the_rate_counts_what_was_answered_in_time() -> None:
    found = Figures.of([window(shot(900), shot(1100), seconds=1.0)], checked=True)
    assert found.requests_per_s == 1.0
    assert found.answered == 2
    assert found.makespan_s == pytest.approx(1.1)


def test_cpu_is_of_client_and_server_and_the_client_apart() -> None:
    found = Figures.of([window(shot(1), shot(1)), window(shot(1), shot(1))], checked=True)
    assert found.cpu_ms == pytest.approx(4.0)
    assert found.client_cpu_ms == pytest.approx(1.0)
    elsewhere = Figures.of([window(shot(1), server_cpu_s=None)], checked=True)
    assert elsewhere.cpu_ms is None


def test_wrong_answers_and_refusals_are_errors_and_no_median_hides_them() -> None:
    refused = Shot(
        action=HELLO,
        intended=100.0,
        sent=100.0,
        answered=100.5,
        error=grpc.aio.AioRpcError(
            grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "it is gone"
        ),
    )
    bad = Figures.of([window(shot(1, said="goodbye"), refused)], checked=True)
    good = Figures.of([window(shot(1))], checked=True)
    assert bad.errors.total() == 2
    assert any("goodbye" in text for text in bad.errors)
    assert any("it is gone" in text for text in bad.errors)
    assert bad.answered == 1
    merged = Figures.median_of([good, bad, good])
    assert merged.errors == bad.errors
    assert merged.requests == 4


def test_the_floor_may_say_nothing() -> None:
    assert not Figures.of([window(shot(1, said=""))], checked=False).errors
