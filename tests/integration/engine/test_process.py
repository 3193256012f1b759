"""`engine serve` as a process: killed, started again, stopped."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from engine.serving.journal.journal import Journal
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.engines import Learner, in_order, listening, started
from tests.support.recipes import TASK_FILE, write_recipe
from tests.support.tools import ToolDouble, add_up
from tests.support.waiting import holds_for, until
from toolwright import json_data
from toolwright.rpc.channel import open_channel
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

START_SECONDS = 60.0
RUN = {"steps": 1, "groups_per_step": 3, "group_size": 2}


@asynccontextmanager
async def process(here: World) -> AsyncIterator[tuple[Process, Learner]]:
    """`engine serve` on the world's recipe, with a learner, once it serves."""
    address = here.tables["run"]["engine"]
    async with launched(here) as engine:
        if not await listening(address, lambda: engine.returncode is None, START_SECONDS):
            raise AssertionError(await engine.communicate())
        async with open_channel(address) as channel:
            await in_order(channel, lambda: engine.returncode is None)
            yield engine, Learner(channel)


@asynccontextmanager
async def launched(here: World) -> AsyncIterator[Process]:
    """`engine serve` on the world's recipe; killed if the test leaves it."""
    file = write_recipe(here.folder, here.tables)
    serving = await started("serve", file, stderr=PIPE, cwd=here.folder)
    try:
        yield serving
    finally:
        if serving.returncode is None:
            serving.kill()
        await serving.communicate()


async def ended(engine: Process) -> tuple[int, str]:
    """(exit code, stderr)."""
    async with asyncio.timeout(30):
        _, said = await engine.communicate()
    assert engine.returncode is not None
    return engine.returncode, said.decode()


class Holding(ToolDouble):
    """Calls of task 2 wait for `release`."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.release = asyncio.Event()
        self.held: list[str] = []

    async def _answer(self, request: pb.CallToolRequest) -> pb.CallResult:
        if request.call_id.startswith("g0000002"):
            self.held.append(request.session_id)
            await self.release.wait()
        return add_up(request)


async def test_killed_and_started_again_and_drained(world: MakeWorld) -> None:
    """Finished groups are offered again as they were. This service cannot tell what its sessions
    ran, so the unfinished group runs anew, in sessions of its own, and the old ones are closed. A
    drain then finishes what is in flight."""
    tools = Holding()
    here = await world(tools=tools, run=RUN)
    async with process(here) as (engine, learner):
        version = await learner.version()
        before = await learner.lease(version, count=2)
        await until(lambda: len(tools.held) == 2, "the third group's calls")
        old = set(tools.held)
        await until(lambda: tools.live == old, "the closing of the others")
        engine.send_signal(signal.SIGKILL)
        assert (await ended(engine))[0] == -signal.SIGKILL
    assert tools.live == old  # nobody closed them

    async with process(here) as (engine, learner):
        assert await learner.version() == version
        await until(lambda: old <= set(tools.closed), "the closing of the old ones")
        assert await learner.lease(version, count=2) == before
        await until(lambda: len(tools.held) == 4, "the third group's calls, again")
        new = set(tools.held[2:])
        assert not new & old
        await until(lambda: tools.live == new, "the closing of the others")
        assert (await learner.status()).running == 2

        engine.terminate()
        await holds_for(0.2, lambda: engine.returncode is None, "the drain to wait")
        tools.release.set()
        code, said = await ended(engine)
        assert code == 0, said
    assert not tools.live
    assert not here.sampler.scheduler.running

    journal = Journal(here.folder / "run" / "journal.sqlite")
    assert await journal.finished_positions() == {0, 1, 2}
    *offered, last = await journal.groups_after(0, 9)
    assert [(g.sequence, g.id, g.hash) for g in offered] == [
        (g.info.sequence_number, g.info.id, g.info.content_hash) for g in before
    ]
    assert last.id == "g0000002"
    assert journal.owner == tools.opened[0].owner
    await journal.close()


async def test_a_drain_has_an_end(world: MakeWorld) -> None:
    """Calls that hang and a reward function that never returns keep nothing running but the
    sessions that a later life goes on with."""
    tools = Holding()
    here = await world(tools=tools, run=RUN, engine={"drain_s": 0.3})
    here.tables["task"]["reward_seconds"] = 3600
    (here.folder / "my_reward.py").write_text(
        "import time\n"
        "def score(t):\n"
        "    if t.task.metadata['number'] == 1: time.sleep(3600)\n"
        "    return 1.0\n",
        encoding="utf-8",
    )
    async with process(here) as (engine, learner):
        await learner.lease(count=1)
        await until(lambda: len(tools.held) == 2, "the calls that hang")
        engine.terminate()
        code, said = await ended(engine)
        assert code == 0, said
        assert "Traceback" not in said
    # A later life goes on in these, and where there is none their leases end.
    assert {name.split("/")[1] for name in tools.live} == {"g0000002-0", "g0000002-1"}
    log = (here.folder / "run" / "engine.jsonl").read_text(encoding="utf-8")
    assert '"unfinished_at_drain"' in log
    journal = Journal(here.folder / "run" / "journal.sqlite")
    assert await journal.finished_positions() == {0}
    await journal.close()


async def test_told_to_stop_before_it_serves(world: MakeWorld) -> None:
    """It ends in order, whatever it waits for: here a sampler that accepts and does not answer."""
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()

    here = await world(run=RUN)
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        here.tables["sampler"]["endpoints"] = [f"http://127.0.0.1:{port}"]
        async with launched(here) as engine:
            async with asyncio.timeout(START_SECONDS):
                await asked.wait()
            engine.terminate()
            code, said = await ended(engine)
    assert code == 0 and said.endswith("before it served\n")


async def test_told_to_stop_while_it_loads(world: MakeWorld) -> None:
    """In code of the recipe's, which nothing can interrupt: as soon as that returns."""
    here = await world(run=RUN)
    (here.folder / "task.py").write_text(
        TASK_FILE + "import os, time\nopen('loading', 'w').close()\n"
        "while os.path.exists('loading'): time.sleep(0.01)\n",
        encoding="utf-8",
    )
    async with launched(here) as engine:
        loading = here.folder / "loading"
        await until(loading.exists, "the loading of the task source", START_SECONDS)
        engine.terminate()
        loading.unlink()
        code, said = await ended(engine)
    assert code == 0 and said.endswith("before it served\n")


async def test_the_engine_s_process_is_small(world: MakeWorld) -> None:
    """No torch, and not what would import it: 326 MiB against 70 where it is installed."""
    here = await world(run=RUN)
    async with process(here) as (engine, learner):
        await learner.lease(count=3)
        loaded = await asyncio.to_thread(Path(f"/proc/{engine.pid}/maps").read_text)
        used = psutil.Process(engine.pid).memory_full_info().uss
        engine.terminate()
        assert (await ended(engine))[0] == 0
    assert "/torch/" not in loaded
    assert used < 150 << 20


AHEAD = {
    "steps": 4,
    "groups_per_step": 3,
    "group_size": 2,
    "max_staleness": 1,
    "correction": "decoupled",
}


@pytest.mark.slow
async def test_a_group_keeps_its_iteration_over_new_weights_and_a_kill(world: MakeWorld) -> None:
    """Six groups begin with the first weights. The third of them waits for its tools while new
    weights come and the engine is killed; its sessions are lost, so that its members begin anew.
    Then a learner resumes from a checkpoint."""
    tools = Holding()
    here = await world(tools=tools, run=AHEAD)
    here.tables["task"]["metadata"] = {"memory_iteration": "{iteration}"}

    def seen() -> set[tuple[int, str]]:
        """(position of the group, the iteration that a session of it was opened with)."""
        return {
            (
                int(request.session_id.partition("/g")[2][:7]),
                str(json_data.mapping(request.metadata)["memory_iteration"]),
            )
            for request in tools.opened
        }

    async with process(here) as (engine, learner):
        version = await learner.version()
        await until(lambda: len(tools.held) == 2, "the third group's calls")
        await until(lambda: len(tools.opened) == 12, "six groups")
        newer = WeightVersion(lineage=version.lineage, step=1)
        await learner.publish(newer, here.weights("1"))
        await until(lambda: len(tools.opened) == 18, "nine groups")
        engine.send_signal(signal.SIGKILL)
        assert (await ended(engine))[0] == -signal.SIGKILL
    async with process(here) as (engine, learner):
        await until(lambda: len(tools.held) == 4, "the third group's calls, again")
        tools.release.set()
        # A learner that resumed goes on in a lineage of its own: the same run, the same steps.
        resumed = WeightVersion(lineage="resumed", step=1)
        await learner.publish(resumed, here.weights("1"), parent=newer)
        await learner.publish(replace(resumed, step=2), here.weights("2"))
        await until(lambda: len(seen()) == 12, "twelve groups")
        engine.terminate()
        await ended(engine)
    run = version.lineage
    assert seen() == {(at, f"{run}.{max(0, at // 3 - 1)}") for at in range(12)}
