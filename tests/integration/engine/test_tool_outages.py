"""Tool services that are full, away, killed, and stopped: waited for, counted, and logged."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from engine.core.time_limit import TimeLimit
from engine.core.tools.link import endpoint as link
from engine.core.tools.link import liveness
from engine.core.tools.services import ToolServices, ToolSessions
from engine.core.tools.sessions import open_queue
from engine.errors import AttemptFailed, SessionLost, ToolServiceFailed
from engine.types import Call
from tests.integration.toolsvc.conftest import start_service
from tests.support.net import free_port
from tests.support.tool_sessions import TASK, client, clients, said, send
from tests.support.tools import ToolDouble, add_up, serving
from tests.support.waiting import passes, until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import Tool
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb

pytestmark = pytest.mark.quick

NAP = """
import time
from toolsvc import tool


@tool
def nap(seconds: float) -> str:
    "Sleeps."
    time.sleep(seconds)
    return f"slept {seconds}"
"""


def nap(seconds: float) -> Call:
    return Call(action="nap", tool="nap", arguments={"seconds": seconds})


class Small(ToolDouble):
    """Has room for so many sessions; remembers the order in which they came in."""

    def __init__(self, room: int, **how: Any) -> None:
        super().__init__(**how)
        self.room = room
        self.most = 0
        self.refused = 0
        self.order: list[str] = []

    async def OpenSession(
        self, request: pb.OpenSessionRequest, context: Any
    ) -> pb.OpenSessionResponse:
        if len(self.owners) >= self.room and request.session_id not in self.owners:
            self.refused += 1
            self.open_faults = [
                ServiceError(reasons.ERROR_REASON_TOO_MANY_SESSIONS, "it is full", retry_after=0.5)
            ]
        answer: pb.OpenSessionResponse = await super().OpenSession(request, context)
        self.order.append(request.session_id)
        self.most = max(self.most, len(self.owners))
        return answer


async def test_a_full_service_is_waited_for_and_every_trajectory_gets_its_turn() -> None:
    """Four times as many as there is room for; nobody fails, and nobody hammers."""
    double = Small(8)
    async with client(double, renews=True) as tools:

        async def trajectory(number: int) -> None:
            environment = await tools.open_session(f"s{number}", TASK)
            assert await said(environment) == "2"
            await asyncio.sleep(0.02)
            environment.close()

        running = [asyncio.create_task(trajectory(number)) for number in range(64)]
        await until(lambda: tools.statistics()["python"].opens_waiting > 20, "the line")
        async with asyncio.timeout(20):
            await asyncio.gather(*running)
        statistics = tools.statistics()["python"]
        assert double.most == 8
        assert len(set(double.order)) == 64
        assert statistics.opens_waiting == 0
        assert statistics.failures == {}
        assert statistics.retries["TOO_MANY_SESSIONS"] == double.refused
        # The first burst finds no room; after that only the first of the line asks.
        assert double.refused < 64 * 4


async def test_who_waits_for_room_can_be_cancelled_and_the_next_comes_in() -> None:
    double = Small(1)
    async with client(double, renews=True) as tools:
        holder = await tools.open_session("holder", TASK)
        first = asyncio.create_task(tools.open_session("first", TASK))
        await until(lambda: double.refused > 0, "a refusal")
        second = asyncio.create_task(tools.open_session("second", TASK))
        await passes(0.05, "the second waits for room too")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        holder.close()
        environment = await second
        environment.close()
        await until(lambda: not double.live, "the end")


async def test_a_full_service_is_said_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_queue, "FIRST_REPORT", 0.2)
    full = ServiceError(reasons.ERROR_REASON_TOO_MANY_SESSIONS, "full", retry_after=0.05)
    double = ToolDouble(open_faults=[full] * 100_000)
    with capture_logs() as logs:
        async with client(double, renews=True) as tools:
            waiting = [asyncio.create_task(tools.open_session(f"s{n}", TASK)) for n in range(3)]
            await passes(2.5, "the service stays full")
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
    told = [entry for entry in logs if entry["event"] == "tool_service_full"]
    assert 2 <= len(told) <= 5
    assert all(entry["service"] == "python" and entry["waiting"] == 3 for entry in told)


async def test_two_that_wait_do_not_wait_for_each_other() -> None:
    """Each service has room for one; who waits for the first holds nothing on the second."""
    async with serving(Small(1)) as one, serving(Small(1, open_seconds=0.01)) as two:
        tables = {"one": Tool(service=one.address), "two": Tool(service=two.address)}
        async with clients(tables, renews=True) as tools:

            async def trajectory(number: int) -> None:
                environment = await tools.open_session(f"s{number}", TASK)
                assert [ref.service for ref in environment.refs] == ["one", "two"]
                environment.close()

            async with asyncio.timeout(20):
                await asyncio.gather(*(trajectory(number) for number in range(12)))
            await until(lambda: not one.live and not two.live, "the end")


async def test_a_service_that_is_away_too_long_fails_the_attempt_and_not_for_good() -> None:
    double = ToolDouble()
    async with client(double, renews=True, patience_s=0.5) as tools:
        environment = await tools.open_session("s", TASK)
        await double.stop()
        with pytest.raises(ToolServiceFailed) as call:
            await said(environment)
        with pytest.raises(ToolServiceFailed) as open_:
            await tools.open_session("other", TASK)
        assert not call.value.permanent
        assert not open_.value.permanent
        statistics = tools.statistics()["python"]
        assert statistics.failures == {"UNAVAILABLE": 2}
        assert statistics.retries["UNAVAILABLE"] >= 2
        assert statistics.seconds_away > 0.4


@pytest.fixture
def nap_service(tmp_path: Path) -> Callable[[int], Any]:
    (tmp_path / "nap.py").write_text(NAP, encoding="utf-8")

    def start(port: int) -> Any:
        listen = f"127.0.0.1:{port}"
        return start_service(tmp_path / "log", str(tmp_path / "nap.py"), "--listen", listen)

    return start


async def test_a_service_that_is_killed_and_back_costs_attempts_and_no_trajectory(
    nap_service: Callable[[int], Any],
) -> None:
    """Sessions go with it: their attempts end as SessionLost, and the next ones find it."""
    port = free_port()
    service = await asyncio.to_thread(nap_service, port)
    lost = 0

    async def trajectory(tools: ToolServices, number: int) -> None:
        nonlocal lost
        for attempt in range(5):
            environment = await tools.open_session(f"s{number}/{attempt}", TASK)
            try:
                for turn in range(4):
                    assert await said(environment, nap(0.2), turn) == "slept 0.2"
            except SessionLost:
                lost += 1
            else:
                return
            finally:
                environment.close()
        raise AssertionError("no attempt was left")

    try:
        with capture_logs() as logs:
            async with clients({"nap": Tool(service=service.address)}, renews=True) as tools:
                running = [asyncio.create_task(trajectory(tools, n)) for n in range(24)]
                await until(lambda: tools.statistics()["nap"].calls_in_flight > 5, "calls")
                service.process.kill()
                await asyncio.to_thread(service.process.wait)
                await passes(2.0, "the service is away")
                service = await asyncio.to_thread(nap_service, port)
                async with asyncio.timeout(60):
                    await asyncio.gather(*running)
                statistics = tools.statistics()["nap"]
    finally:
        service.process.kill()
        service.process.wait()
    assert lost >= 5
    assert statistics.seconds_away > 1.5
    assert statistics.retries["UNAVAILABLE"] > 0
    assert set(statistics.failures) <= {"SESSION_NOT_FOUND", "SESSION_LOST"}
    events = [entry["event"] for entry in logs]
    assert events.count("tool_service_away") == events.count("tool_service_back") == 1


async def test_a_service_that_is_stopped_is_noticed_and_nothing_is_lost(
    nap_service: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its connections and says nothing. Its trajectories' clocks stand still."""
    for module in (liveness, link):
        monkeypatch.setattr(module, "PROBE_SECONDS", 1.0)
    monkeypatch.setattr(liveness, "QUIET_SECONDS", 1.0)
    service = await asyncio.to_thread(nap_service, free_port())
    try:
        with capture_logs() as logs:
            async with clients({"nap": Tool(service=service.address)}, renews=True) as tools:
                environments = [await tools.open_session(f"s{n}", TASK) for n in range(4)]

                async def trajectory(environment: ToolSessions) -> str:
                    limit = TimeLimit(3.0)
                    async with limit:
                        reply = await send(environment, nap(0.5)).result(limit)
                    return reply.outcome.observation

                running = [asyncio.create_task(trajectory(one)) for one in environments]
                await until(lambda: tools.statistics()["nap"].calls_in_flight == 4, "calls")
                os.kill(service.process.pid, signal.SIGSTOP)
                await passes(4.5, "the service says nothing")
                assert tools.statistics()["nap"].seconds_away > 2.0
                os.kill(service.process.pid, signal.SIGCONT)
                assert await asyncio.gather(*running) == ["slept 0.5"] * 4
                statistics = tools.statistics()["nap"]
    finally:
        service.process.kill()
        service.process.wait()
    away = [e for e in logs if e["event"].startswith("tool_service_")]
    assert [(e["event"], e["service"]) for e in away] == [
        ("tool_service_away", "nap"),
        ("tool_service_back", "nap"),
    ]
    assert statistics.seconds_away == pytest.approx(4.5, abs=1.5)
    assert statistics.failures == {}


async def test_a_call_that_takes_long_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (liveness, link):
        monkeypatch.setattr(module, "PROBE_SECONDS", 0.2)
    monkeypatch.setattr(liveness, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(link, "TICK_SECONDS", 0.05)

    async def slow(request: pb.CallToolRequest) -> pb.CallResult:
        await asyncio.sleep(1.5)
        return add_up(request)

    with capture_logs() as logs:
        async with client(ToolDouble(slow), renews=True) as tools:
            environment = await tools.open_session("s", TASK)
            assert await said(environment) == "2"
            assert tools.statistics()["python"].seconds_away == 0.0
    assert not [entry for entry in logs if entry["event"].startswith("tool_service_")]


async def test_a_session_that_is_refused_for_good_is_one_sentence_and_no_wait() -> None:
    refusal = ServiceError(reasons.ERROR_REASON_NOT_OWNER, "this engine may not come in")
    async with client(ToolDouble(open_faults=[refusal]), renews=True) as tools:
        with pytest.raises(AttemptFailed, match="may not come in") as caught:
            await tools.open_session("s", TASK)
        assert caught.value.permanent
        assert tools.statistics()["python"].failures == {"NOT_OWNER": 1}
