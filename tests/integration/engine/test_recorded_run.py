"""A run that the engine recorded: replayed bit for bit, and looked at while it is served."""

from __future__ import annotations

import json

import pytest

from engine.core.text.codec import HuggingFaceCodec
from tests.integration.engine.conftest import MakeWorld
from tests.support.dialogue import ANSWER, CALL, by_turn
from tests.support.engines import finished

pytestmark = pytest.mark.quick

RUN = {"steps": 4, "groups_per_step": 3, "group_size": 2}


async def test_a_recorded_run_is_replayed_identically_and_can_be_looked_at_meanwhile(
    world: MakeWorld, codec: HuggingFaceCodec
) -> None:
    unread = "1+1</python>"  # goes to no service
    here = await world(
        script=by_turn(codec, [unread, CALL, ANSWER]), run=RUN, engine={"history": "all"}
    )
    async with here.engine() as run:
        groups = await run.learner.lease(run.version, count=3)
        await run.learner.acknowledge(groups[-1].info.sequence_number)
        found = json.loads(await said("inspect", run.folder, "--json"))
        shown = json.loads(await said("inspect", run.folder, "g0000001-1", "--json"))
        drawn = await said("inspect", run.folder, "g0000001-1")
        again = await said("replay", run.folder, here.folder / "recipe.toml")
    assert found["engine_lives"]
    assert found["version"] == str(run.version)
    assert found["groups"]["delivered"] == 3
    assert "6 trajectories of 3 groups" in again
    assert "identical" in again
    (group,) = [group for group in groups if group.info.id == "g0000001"]
    told = [e for e in shown["timeline"] if e["kind"] == "tokens"]
    (sequence,) = group.members[1].sequences
    assert [e["tokens"] for e in told] == [len(s.token_ids) for s in sequence.segments]
    assert shown["reward"] == group.members[1].reward
    assert "MODEL" in drawn


async def said(*words: object) -> str:
    """What the command prints; AssertionError if it ends with another code than 0."""
    code, out, error = await finished(*words)
    assert code == 0, out + error
    return out
