"""A worker that nobody sees end, as on a node that is cut off: its work waits for its lease."""

from __future__ import annotations

import asyncio

import pytest

from bench.scripted import Timing
from engine.core.tools.output_log import OutputLog
from engine.serving.crew.local_workers import LocalWorkers, WorkerProcess
from engine.serving.crew.worker_process import work_command
from engine.serving.seams import Seams
from engine.serving.worker.worker import LEASE_ENDED
from tests.integration.engine.conftest import MakeWorld
from tests.support.waiting import until

pytestmark = pytest.mark.slow


class CutOff(WorkerProcess):
    """A worker that is reported dead, and cannot be killed, while it lives on."""

    def __init__(self, command: tuple[str, ...], output: OutputLog) -> None:
        super().__init__(command, output)
        self.reported = asyncio.Event()
        self.code: int | None = None

    async def ended(self) -> str:
        await self.reported.wait()
        return "its node is reported dead"

    async def kill(self) -> bool:
        return False

    async def really_ended(self) -> None:
        assert self._process is not None
        self.code = await self._process.wait()


class FirstCutOff(LocalWorkers):
    """Workers of this machine; the first is cut off."""

    first: CutOff | None = None

    def make(self, name: str, output: OutputLog) -> WorkerProcess:
        if self.first is not None:
            return super().make(name, output)
        self.first = CutOff(work_command(self._address, name), output)
        return self.first


async def test_work_of_an_unseen_end_waits_until_the_lease_is_over(world: MakeWorld) -> None:
    here = await world(run={"steps": 1, "groups_per_step": 2, "group_size": 2},
                       timing=Timing(tokens_per_second=20))  # fmt: skip
    crew = FirstCutOff()
    async with here.engine(workers=1, seams=Seams(crew=crew)) as run:
        await until(lambda: len(here.tools.opened) == 4, "all sessions")
        first = crew.first
        assert first is not None
        ending = asyncio.create_task(first.really_ended())
        first.reported.set()
        groups = await run.learner.lease(run.version, count=2)
        await ending
        await until(lambda: not here.tools.live, "the sessions' end")
    assert first.code == LEASE_ENDED
    members = [member for group in groups for member in group.members]
    assert [member.reward for member in members] == [1.0] * 4
    assert len(here.tools.asked) == 4
