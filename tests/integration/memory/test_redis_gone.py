"""A memory service whose Redis is silent, away, or back without its data."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from memory.store.redis import ANSWER_SECONDS
from tests.support.memory_service import group, made, memory_process
from tests.support.redis import RedisServer, redis_server
from toolwright.memory.v1 import memory_pb2 as pb
from toolwright.memory.v1 import memory_pb2_grpc

pytestmark = pytest.mark.quick

SOON_S = 3 * ANSWER_SECONDS


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server("noeviction") as server:
        yield server


def test_requests_are_answered_and_a_lost_memory_says_so(redis: RedisServer) -> None:
    with (
        memory_process(f"{redis.url}#tools") as served,
        grpc.insecure_channel(served.address) as to,
    ):
        stub = memory_pb2_grpc.MemoryServiceStub(to)

        def merge(number: int) -> int:
            shape = made(f"shape{number}", f"area of shape {number}")
            work = group(f"run/g{number}", [shape])
            return int(stub.MergeGroup(work, timeout=SOON_S).version)

        def refusal(number: int) -> str:
            with pytest.raises(grpc.RpcError) as caught:
                merge(number)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            return str(caught.value.details())

        assert merge(1) == 1
        redis.pause()
        try:
            assert "Timeout" in refusal(2)
        finally:
            redis.go_on()
        assert merge(2) == merge(2) == 2

        redis.stop()
        assert "Connection refused" in refusal(3)
        found = stub.Retrieve(pb.RetrieveRequest(question="area"), timeout=SOON_S)
        assert found.version == 2
        redis.start()
        assert "has lost changes, it holds 0 of 2" in refusal(3)
        assert "has lost changes" in refusal(1)
