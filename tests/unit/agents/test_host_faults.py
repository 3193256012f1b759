"""An unexpected fault of one agent: the host reports it and goes on."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest
from structlog.testing import capture_logs

from agents.engine_link import EngineLink
from agents.host import AgentHost, Program
from agents.kinds.kind import Assigned, Kind, Played
from agents.outcomes import Ending
from toolwright import wire
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.ingress.v1 import ingress_pb2_grpc
from toolwright.types import Task

pytestmark = pytest.mark.quick

COUNT = 2
"""Trajectories: the first one's agent breaks."""


class Engine(ingress_pb2_grpc.IngressServiceServicer):
    """Hands out the trajectories and keeps the reports of their ends."""

    def __init__(self) -> None:
        self.ends = asyncio.Queue[pb.EndedRequest]()

    async def Take(self, request: pb.TakeRequest, _: object) -> pb.TakeResponse:  # type: ignore[override]
        if request.number > COUNT:
            await asyncio.Event().wait()
        return pb.TakeResponse(key=f"key-{request.number}", task=wire.task_to_proto(Task(id="t")))

    async def Hold(self, _: pb.HoldRequest, __: object) -> pb.HoldResponse:  # type: ignore[override]
        return pb.HoldResponse()

    async def Ended(self, request: pb.EndedRequest, _: object) -> pb.EndedResponse:  # type: ignore[override]
        self.ends.put_nowait(request)
        return pb.EndedResponse(calls=1)


class Breaks(Kind):
    async def play(self, assigned: Assigned) -> Played:
        if assigned.number == 1:
            raise RecursionError("too deep")
        return Played(ending=Ending(outcome=pb.OUTCOME_DONE))


async def test_a_fault_of_one_agent_ends_no_other() -> None:
    engine, server = Engine(), grpc.aio.server()
    ingress_pb2_grpc.add_IngressServiceServicer_to_server(engine, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        program = Program(kind=Breaks(), at_once=1)
        host = AgentHost(EngineLink(channel, "w", "l"), {"": program}, lambda: None)
        with capture_logs() as lines:
            running = asyncio.create_task(host.run())
            async with asyncio.timeout(20):
                first, second = [await engine.ends.get() for _ in range(COUNT)]
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await server.stop(None)
    assert (first.key, first.outcome) == ("key-1", pb.OUTCOME_INFRASTRUCTURE)
    assert first.error == "agents serve: RecursionError: too deep"
    assert (second.key, second.outcome) == ("key-2", pb.OUTCOME_DONE)
    assert "agent_fault" in [line["event"] for line in lines]
