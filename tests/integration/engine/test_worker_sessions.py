"""Tool sessions of workers: renewed, reported as lost and closed by the coordinator alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from engine.core.tools.services import ToolServices, ToolSessions
from engine.core.tools.sessions import leases
from engine.serving.crew.session_mirror import SessionMirror
from engine.serving.worker.reports import Reports
from tests.support.tool_sessions import OWNER, TASK
from tests.support.tools import ToolDouble, serving
from tests.support.waiting import passes, until
from toolwright.recipe import Tool

pytestmark = pytest.mark.quick

LIFE = "abc123"


class Pair:
    """A coordinator and a worker w1, with services of the same owner."""

    def __init__(self, double: ToolDouble) -> None:
        tables = {"python": Tool(service=double.address)}
        self.double = double
        self.coordinator = ToolServices(tables, OWNER)
        self.worker = ToolServices(tables, OWNER, life=LIFE)
        self.lost: list[tuple[str, str, str]] = []
        self.mirror = SessionMirror(self.coordinator, lambda *news: self.lost.append(news))
        self.coordinator.leases.worker_lives.add(LIFE)
        self._reports = Reports(lambda _soon: None)

    async def open(self, name: str = "a/1") -> ToolSessions:
        return await self.worker.open_session(name, TASK)

    def report(self, worker: str = "w1") -> None:
        for report in self._reports.close(self.worker):
            for change in report.sessions:
                self.mirror.take(worker, change)

    async def renew(self) -> None:
        before = self.double.renewals
        await self.coordinator.close_abandoned(())
        assert self.double.renewals > before

    @property
    def known(self) -> set[str]:
        return self.coordinator.services["python"].known


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    async with serving(ToolDouble()) as double:
        made = Pair(double)
        try:
            yield made
        finally:
            await made.worker.close()
            await made.coordinator.close()


async def test_a_reported_session_is_renewed_and_never_closed() -> None:
    async with pair() as both:
        session = await both.open()
        both.report()
        for _ in range(3):
            await both.renew()
        assert both.coordinator.statistics()["python"].open_sessions == 1
        session.close()
        await until(lambda: len(both.double.closed) == 1, "the worker's close")
        await until(lambda: not both.worker.services["python"].known, "the worker to forget it")
        both.report()
        assert not both.known
        assert both.coordinator.statistics()["python"].open_sessions == 0


async def test_a_session_that_is_not_reported_yet_survives_renewals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For as long as the connection to its worker may hang."""
    monkeypatch.setattr(leases, "UNKNOWN_S", 1.0)
    async with pair() as both:
        session = await both.open()
        for _ in range(3):
            await both.renew()
        await passes(0.05, "a close would be on its way")
        assert not both.double.closed
        await passes(1.0, "the worker should have reported it")
        await both.renew()
        await until(lambda: both.double.closed == [session.refs[0].session_id], "the close")


async def test_a_dead_workers_sessions_are_closed_but_for_those_that_go_on() -> None:
    async with pair() as both:
        kept, other = await both.open("a/1"), await both.open("b/1")
        both.report()
        (ref,) = kept.refs
        both.mirror.bury("w1", {("python", ref.session_id)})
        both.coordinator.leases.worker_lives.discard(LIFE)
        await until(lambda: both.double.closed == [other.refs[0].session_id], "the other's close")
        await both.renew()
        await both.renew()
        assert both.double.live == {ref.session_id}
        both.mirror.keep(kept.refs)
        both.mirror.release(kept.refs)
        await until(lambda: not both.double.live, "the close of what no worker took")


async def test_a_session_that_another_worker_took_is_not_released() -> None:
    async with pair() as both:
        kept = await both.open()
        both.report()
        both.mirror.bury("w1", {("python", kept.refs[0].session_id)})
        both._reports = Reports(lambda _soon: None)
        both.report("w2")
        both.mirror.release(kept.refs)
        await both.renew()
        await passes(0.05, "a close would be on its way")
        assert both.double.live


async def test_a_lost_session_is_news_for_its_worker() -> None:
    async with pair() as both:
        session = await both.open()
        both.report()
        name = session.refs[0].session_id
        del both.double.owners[name]
        await both.renew()
        assert both.lost == [("w1", "python", name)]
