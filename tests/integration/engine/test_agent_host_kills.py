"""`agents serve` as a process, killed again and again while its agents make calls."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from bench.scripted import Timing
from engine.core.text.codec import HuggingFaceCodec
from tests.integration.engine.conftest import MakeWorld
from tests.integration.engine.test_ingress_kills import START_S, completed, numbered
from tests.support.hosted_agents import ONE_CALL, hosted, is_alive
from tests.support.recipes import PAIR
from tests.support.waiting import passes, until
from toolwright.types import StopReason

pytestmark = pytest.mark.slow

PARTS, KILLS = 4, 5
"""Runs, and kills in a run: twenty together."""
END_S = 10.0
"""Longest time from a host's death to the end of its agents, in seconds."""

TALKS = (
    ONE_CALL
    + """
import pathlib
seen, number = pathlib.Path(os.environ["SEEN"]), os.getpid() * 1000
with open(seen / str(os.getpid()), "w") as heard:
    last = False
    while not last:
        last = (seen / "go").exists()
        print(json.dumps([number, say(f"#{number};")]), file=heard, flush=True)
        number += 1
"""
)


def heard(file: Path) -> Counter[tuple[int, str]]:
    """(call, text) of each reply that an agent got."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return Counter((number, text) for number, text in map(json.loads, lines))


@pytest.mark.parametrize("part", range(PARTS))
async def test_twenty_kills_of_hosts_lose_and_double_nothing(
    world: MakeWorld, codec: HuggingFaceCodec, tmp_path: Path, part: int
) -> None:
    seen, dice = tmp_path / "seen", Random(part)
    seen.mkdir()
    here = await world(script=numbered(codec), timing=Timing(tokens_per_second=150), run=PAIR)
    agent = {"environment": {"SEEN": str(seen)}}
    limits = {"limits": {"seconds": 3600.0}}

    def talking() -> set[int]:
        """Process ids of agents that have a reply, and whose host lives."""
        return {int(one.name) for one in seen.iterdir() if one.stat().st_size} - killed

    killed: set[int] = set()
    async with hosted(here, agent, TALKS, task=limits) as (run, hosts):
        for _ in range(KILLS):
            await until(lambda: len(talking()) == 2, "two agents with a reply each", START_S)
            await passes(dice.uniform(0.0, 0.5), "the kill comes at any point of a call")
            hosts.processes[-1].kill()
            await hosts.processes[-1].wait()
            pids = talking()
            killed |= pids
            await hosts.start()
            await until(lambda pids=pids: not any(map(is_alive, pids)), "their end", END_S)  # type: ignore[misc]
        await until(lambda: len(talking()) == 2, "two agents with a reply each", START_S)
        (seen / "go").touch()
        (group,) = await run.learner.lease(run.version)
    replies = [heard(file) for file in seen.iterdir() if file.name != "go"]
    recorded = [completed(record, codec) for record in group.members]
    assert [one.stop_reason for one in group.members] == [StopReason.ANSWERED] * 2
    assert [one.attempt for one in group.members] == [KILLS] * 2
    assert all(recorded)
    assert all(replies.count(one) == 1 for one in recorded)
