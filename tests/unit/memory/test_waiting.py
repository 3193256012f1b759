"""How many requests wait at `memory serve`."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from memory.config import MemoryTable
from memory.edge import service
from memory.edge.metrics import MemoryMetrics
from memory.edge.service import MemoryServicer
from memory.memory import Memory
from memory.search.embedding import hashing
from memory.store.volatile import VolatileLog
from tests.support.service import refused
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.memory.v1 import memory_pb2 as pb
from toolwright.memory.v1 import memory_pb2_grpc
from toolwright.rpc.channel import call, open_channel
from toolwright.rpc.server import Server

pytestmark = pytest.mark.quick


class Slow(Memory):
    """Questions wait for `go_on`."""

    go_on = threading.Event()

    def retrieve(self, *given: Any, **named: Any) -> Any:
        self.go_on.wait(20)
        return super().retrieve(*given, **named)


async def test_one_request_too_many_is_refused_and_may_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "MOST_WAITING", 2)
    memory = Slow(VolatileLog(), hashing)
    servicer = MemoryServicer(memory, MemoryTable(), store="", metrics=MemoryMetrics())
    server = Server("127.0.0.1:0")
    name = pb.DESCRIPTOR.services_by_name["MemoryService"].full_name
    server.add(name, lambda to: memory_pb2_grpc.add_MemoryServiceServicer_to_server(servicer, to))
    await server.start()
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        stub: Any = memory_pb2_grpc.MemoryServiceStub(channel)

        def ask() -> Any:
            return call(stub.Retrieve, pb.RetrieveRequest(question="q"), timeout=30)

        waiting = [asyncio.create_task(ask()) for _ in range(3)]
        # Two of them wait, whichever came first.
        (early, *_), _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        with refused(reasons.ERROR_REASON_QUEUE_LIMIT) as failure:
            await early
        assert failure.value.retry_after is not None
        Slow.go_on.set()
        others = [one for one in waiting if one is not early]
        assert [len((await one).tools) for one in others] == [0, 0]
        assert not (await ask()).tools
    await server.stop(0)
    servicer.close()
