"""The iteration that a group began in reaches its tools, and a killed engine goes on with it."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from tests.integration.engine.conftest import MakeWorld
from tests.integration.engine.test_process import Holding, ended, process
from tests.support.waiting import until
from toolwright import json_data
from toolwright.types import WeightVersion

pytestmark = pytest.mark.slow

RUN = {
    "steps": 4,
    "groups_per_step": 3,
    "group_size": 2,
    "max_staleness": 1,
    "correction": "decoupled",
}


async def test_a_group_keeps_its_iteration_over_new_weights_and_a_kill(world: MakeWorld) -> None:
    """Six groups begin with the first weights. The third of them waits for its tools while new
    weights come and the engine is killed; its sessions are lost, so that its members begin anew.
    Then a learner resumes from a checkpoint."""
    tools = Holding()
    here = await world(tools=tools, run=RUN)
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
