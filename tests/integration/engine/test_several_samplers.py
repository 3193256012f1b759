"""Several samplers: they share the work, and one that is slow, silent or wrong holds up none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bench.scripted import (
    Break,
    BreakHow,
    Faults,
    ScriptedSampler,
    ScriptItem,
    ScriptRequest,
    Timing,
)
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.dialogue import ANSWER, CALL, by_turn
from tests.support.engines import Running
from tests.support.long_actions import LONG, actions
from tests.support.net import free_port
from tests.support.recipes import ONE
from tests.support.tools import ToolDouble, add_up
from tests.support.waiting import until
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import StopReason

pytestmark = [pytest.mark.quick, pytest.mark.alone]


async def test_two_samplers_share_the_work_and_one_takes_over(world: MakeWorld) -> None:
    """A trajectory stays where its prefix is cached, until that server is gone; then the other one
    goes on from the tokens that came."""
    pause = asyncio.Event()

    async def slow(request: pb.CallToolRequest) -> pb.CallResult:
        await pause.wait()
        # In another order than the first turns: who is least loaded would be another one.
        member = int(request.call_id.partition("/")[0][-1])
        await asyncio.sleep(0.01 * (member // 2 + member % 2 * 4))
        return add_up(request)

    here = await world(
        tools=ToolDouble(slow), timing=Timing(tokens_per_second=100), run={**ONE, "group_size": 8}
    )
    script = by_turn(here.codec, [CALL, LONG])
    here.sampler._script = script
    async with ScriptedSampler(script=script, timing=Timing(tokens_per_second=100)) as other:
        here.tables["sampler"]["endpoints"].append(other.url)
        async with here.engine() as run:
            await until(lambda: len(here.tools.asked) == 8, "all first turns")
            first = [{s.body["routing_key"] for s in x.requests} for x in (here.sampler, other)]
            assert min(len(keys) for keys in first) >= 2  # about half each
            assert not first[0] & first[1]
            pause.set()
            await until(lambda: len(here.sampler.requests) + len(other.requests) == 16, "turns")
            second = [{s.body["routing_key"] for s in x.requests} for x in (here.sampler, other)]
            assert second == first
            await here.sampler.__aexit__()
            (group,) = await run.learner.lease(run.version)
    taken_over = [s for s in other.requests if s.body["routing_key"] in first[0]]
    assert len(taken_over) == len(first[0])
    whole = here.codec.encode(LONG)
    for trajectory in group.members:
        assert actions(trajectory) == [*here.codec.encode(CALL), *whole]
        assert trajectory.attempt == 0
    for seen in taken_over:
        said = here.codec.decode(seen.input_ids).rpartition("</result>")[2]
        assert said
        assert LONG.startswith(said)


@asynccontextmanager
async def beside(here: World, **how: Any) -> AsyncIterator[ScriptedSampler]:
    """A second sampler in the recipe."""
    how = {"script": here.sampler._script, "vocab_size": here.codec.vocab_size, **how}
    async with ScriptedSampler(**how) as other:
        here.tables["sampler"]["endpoints"].append(other.url)
        yield other


def failures(run: Running, sampler: ScriptedSampler) -> dict[str, int]:
    return dict(run.engine._pool.statistics()[sampler.url]["failures"])


@pytest.mark.parametrize(
    "bad",
    [(10**6, -0.1), (320, -0.1), (-5, -0.1), (65, 5.0), (65, -1e300)],
    ids=["huge", "next", "negative", "certain", "impossible"],
)
async def test_what_a_sampler_says_wrong_is_not_recorded_and_asked_elsewhere(
    world: MakeWorld, bad: tuple[int, float]
) -> None:
    """Some of its replies hold a token that is none. The others of it are taken."""
    here = await world(run={**ONE, "groups_per_step": 2, "group_size": 8})
    good = by_turn(here.codec, [CALL, ANSWER])

    met: dict[str, int] = {}

    def spoilt(request: ScriptRequest) -> list[ScriptItem]:
        """For every second conversation, the first one included."""
        said = list(good(request))
        odd = met.setdefault(request.conversation, len(met)) % 2
        return said if odd else [*said[:4], bad, *said[4:]]  # type: ignore[list-item]

    async with beside(here, script=spoilt) as other, here.engine() as run:
        groups = await run.learner.lease(count=2)
        counted = failures(run, other)
        assert failures(run, here.sampler) == {}
    for trajectory in (member for group in groups for member in group.members):
        assert (trajectory.attempt, trajectory.stop_reason) == (0, StopReason.ANSWERED)
        assert actions(trajectory) == [*here.codec.encode(CALL), *here.codec.encode(ANSWER)]
    assert set(counted) == {"malformed"}


async def test_a_stream_that_stands_still_is_taken_to_another_sampler(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before it counts as silent, and nothing of it is lost."""
    monkeypatch.setattr("engine.core.sampler.wire.stream.QUIET_SECONDS", 0.3)
    monkeypatch.setattr("engine.core.sampler.wire.stream.LOOK_SECONDS", 0.1)
    here = await world(run={**ONE, "group_size": 4}, sampler={"timeout_s": 100.0})
    here.sampler._script = by_turn(here.codec, [LONG])
    stuck = Faults(breaks={n: Break(chunks=2, how=BreakHow.STALL) for n in range(99)})
    async with beside(here, faults=stuck) as other, here.engine() as run:
        async with asyncio.timeout(15):
            (group,) = await run.learner.lease()
        assert other.requests
    for trajectory in group.members:
        assert actions(trajectory) == here.codec.encode(LONG)
        assert trajectory.attempt == 0


async def test_a_start_does_not_wait_for_a_sampler_that_is_down(world: MakeWorld) -> None:
    """It is set aside, and gets its share once it is back with the newest weights."""
    here = await world(
        timing=Timing(tokens_per_second=200),
        run={**ONE, "steps": 999, "max_staleness": 998, "correction": "decoupled"},
        engine={"max_concurrent": 4},
    )
    port = free_port()
    here.tables["sampler"]["endpoints"].append(f"http://127.0.0.1:{port}")
    async with here.engine() as run:
        await run.learner.lease(run.version)
        absent = run.engine._pool.statistics()[f"http://127.0.0.1:{port}"]
        assert (absent["up"], absent["in_flight"]) == (False, 0)
        assert "connection refused" in absent["why"]
        new = run.at(1)
        assert (await run.learner.publish(new, here.weights("1"))).samplers == 1
        seen: list[str] = []
        script = here.sampler._script

        def late(request: ScriptRequest) -> Any:
            seen.append(other.scheduler.weight_version)
            return script(request)

        async with ScriptedSampler(
            script=late, port=port, timing=Timing(tokens_per_second=200)
        ) as other:
            await until(lambda: bool(seen), "a request to the late sampler")
    assert set(seen) == {str(new)}


async def test_a_sampler_ten_times_slower_makes_a_run_no_slower(world: MakeWorld) -> None:
    """The same work with the fast sampler alone and with a slow one beside it."""
    run_table = {**ONE, "group_size": 16}
    fast = Timing(tokens_per_second=200, tokens_per_chunk=4)
    slow = Timing(tokens_per_second=20, tokens_per_chunk=4)
    here = await world(timing=fast, run=run_table, task={"limits": {"turns": 6}})
    script = by_turn(here.codec, [CALL] * 5 + [LONG])
    here.sampler._script = script

    async def seconds(folder: str) -> float:
        async with here.engine(run={"folder": folder}) as run:
            began = time.monotonic()
            (group,) = await run.learner.lease()
            assert all(member.attempt == 0 for member in group.members)
            return time.monotonic() - began

    alone = await seconds("alone")
    async with beside(here, timing=slow):
        both = await seconds("both")
    print(f"fast alone {alone:.2f} s, with a slow one beside it {both:.2f} s")
    assert both < 1.5 * alone + 1.0  # a slow turn takes a second; today's routing: 4.6 times
