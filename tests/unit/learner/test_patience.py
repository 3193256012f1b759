"""How long the learner waits for an engine: as long as it is told, whatever the engine does.

A real gRPC server, whose handlers hang; deadlines are cut to fractions of a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from learner.errors import EngineError
from learner.intake import client as client_module
from learner.intake.client import EngineClient
from tests.support.net import free_port
from toolwright.common.v1 import trajectory_pb2
from toolwright.policy.v1 import policy_pb2_grpc
from toolwright.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from toolwright.types import WeightVersion
from toolwright.wire import content_hash

PATIENCE = 0.5
DEADLINE = 0.2


class Hanging(rollout_pb2_grpc.RolloutServiceServicer, policy_pb2_grpc.PolicyServiceServicer):
    """Takes every call and answers none until `over`; counts them."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.calls = 0

    def _hang(self, _request: Any, context: grpc.ServicerContext) -> Any:
        self.calls += 1
        self.over.wait(30)
        context.abort(grpc.StatusCode.CANCELLED, "the test is over")

    GetPolicy = PublishWeights = AckGroups = GetStatus = _hang

    def LeaseGroups(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._hang(request, context)
        yield rollout_pb2.LeaseGroupsResponse()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Hanging, str]]:
    for name in ("SHORT_S", "PUBLISH_S", "GLANCE_S"):
        monkeypatch.setattr(client_module, name, DEADLINE)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    handlers = Hanging()
    rollout_pb2_grpc.add_RolloutServiceServicer_to_server(handlers, server)
    policy_pb2_grpc.add_PolicyServiceServicer_to_server(handlers, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield handlers, f"127.0.0.1:{port}"
    handlers.over.set()
    server.stop(0).wait()


VERSION = WeightVersion(lineage="a", step=1)
CALLS = {  # a call and a stream: all others go the same way
    "GetPolicy": lambda client: client.served(),
    "LeaseGroups": lambda client: client.lease(after=0, count=1, version=VERSION, wait=0.0),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", CALLS)
def test_an_engine_that_takes_calls_and_answers_none_is_given_up(
    hanging: tuple[Hanging, str], what: str
) -> None:
    handlers, address = hanging
    said: list[str] = []
    with (
        EngineClient(address, patience=PATIENCE, say=said.append) as client,
        pytest.raises(EngineError, match=f"did not answer {what}.*is `engine serve RECIPE` run"),
    ):
        CALLS[what](client)
    assert 2 <= handlers.calls <= 5
    assert said and what in said[0]


@pytest.mark.timeout(20)
def test_a_number_for_the_metrics_is_not_waited_for(hanging: tuple[Hanging, str]) -> None:
    handlers, address = hanging
    for where in (address, f"127.0.0.1:{free_port()}"):
        with EngineClient(where, patience=600.0, say=print) as client:
            began = time.monotonic()
            assert client.state_now() is None
            assert time.monotonic() - began < 10
    assert handlers.calls == 1


class Breaking(rollout_pb2_grpc.RolloutServiceServicer):
    """Breaks the stream after each group; leases start where they are asked to."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def LeaseGroups(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.asked.append((request.after_sequence, request.max_groups))
        number = request.after_sequence + 1
        yield rollout_pb2.LeaseGroupsResponse(
            group=trajectory_pb2.GroupInfo(
                id=f"g{number}", sequence_number=number, content_hash=content_hash(())
            )
        )
        if request.max_groups > 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")


@pytest.mark.timeout(20)
def test_a_lease_that_breaks_goes_on_behind_the_last_group_that_came() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    handlers = Breaking()
    rollout_pb2_grpc.add_RolloutServiceServicer_to_server(handlers, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with EngineClient(f"127.0.0.1:{port}", patience=10, say=lambda _line: None) as client:
        groups = client.lease(after=4, count=3, version=VERSION, wait=0.0)
    server.stop(0).wait()
    assert [one.sequence_number for one in groups] == [5, 6, 7]
    assert handlers.asked == [(4, 3), (5, 2), (6, 1)]
