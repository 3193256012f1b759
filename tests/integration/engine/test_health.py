"""grpc.health.v1 on the engine: NOT_SERVING while the journal's disk is full."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from engine.core.trajectory.events import Streamed
from engine.serving.serve import Engine
from tests.integration.engine.conftest import MakeWorld
from tests.support.waiting import PATIENCE
from toolwright.rpc.channel import open_channel
from toolwright.types import floats, ids

pytestmark = pytest.mark.quick

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
NAMES = (
    "", "toolwright.rollout.v1.RolloutService", "toolwright.policy.v1.PolicyService",
)  # fmt: skip


def room(engine: Engine, pages: int) -> None:
    """How many pages the journal's file may still grow by."""
    db = engine.journal._db
    (now,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count={now + pages}")


async def test_health_follows_the_disk_and_the_run_goes_on(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.serving.serve.PROGRESS_SECONDS", 0.02)
    monkeypatch.setattr("engine.serving.journal.writer.RETRY_S", 0.05)
    monkeypatch.setattr("engine.serving.admission.train.FULL_SECONDS", 0.05)
    here = await world(run={"steps": 2, "groups_per_step": 2, "group_size": 2})
    async with (
        here.engine() as run,
        open_channel(here.tables["run"]["engine"]) as channel,
    ):
        stub: Any = health_pb2_grpc.HealthStub(channel)

        async def becomes(status: int) -> None:
            async with asyncio.timeout(PATIENCE):
                for name in NAMES:
                    request = health_pb2.HealthCheckRequest(service=name)
                    stream = stub.Watch(request)
                    while (await stream.read()).status != status:
                        pass
                    stream.cancel()

        await run.learner.lease(run.version, count=2)
        tokens = 1 << 18
        long = Streamed(
            token_ids=ids([7] * tokens),
            logprobs=floats([-0.5] * tokens),
            versions=((run.version, tokens),),
        )
        await becomes(SERVING)
        room(run.engine, 0)
        run.engine.journal.append("g0000099-0/b9r0a0", [long])
        await becomes(NOT_SERVING)
        assert (await run.learner.status()).state == "full"
        assert run.engine.metrics.registry.get_sample_value("toolwright_engine_journal_full") == 1
        room(run.engine, 10_000)
        await becomes(SERVING)
        assert (await run.learner.status()).state == "running"
