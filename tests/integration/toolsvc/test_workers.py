"""Several workers behind one address: where sessions live, and who knows it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from grpc_health.v1 import health_pb2

from tests.support.workers import NOTES, Client, connected, one_at_each, refusal
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb

from .conftest import Service, running_service

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two workers, for all tests that leave them alive."""
    log = tmp_path_factory.mktemp("service") / "errors.log"
    with running_service(log, NOTES, "--workers", "2") as running:
        yield running


@pytest.fixture
async def client(service: Service) -> AsyncIterator[Client]:
    async with connected(service.address) as one:
        yield one


async def test_a_session_lives_at_the_endpoint_that_opening_names(client: Client) -> None:
    at = await one_at_each(client)
    assert client.address not in at
    pids = set()
    for endpoint, session in at.items():
        async with connected(endpoint) as there:
            pids.add(await there.say(session, "pid"))
            assert await there.say(session, "a") == "a"
            assert await there.say(session, "b") == "a,b"
    assert len(pids) == 2


async def test_a_call_at_the_wrong_endpoint_names_the_right_one_and_runs_nothing(
    client: Client,
) -> None:
    (right, session), (wrong, _) = (await one_at_each(client)).items()
    async with connected(wrong) as there, connected(right) as here:
        with pytest.raises(ServiceError) as failure:
            await there.say(session, "lost?", "call")
        assert refusal(failure) == "WRONG_ENDPOINT"
        assert failure.value.endpoint == right
        assert failure.value.subject == session
        assert await here.say(session, "a", "call") == "a"
        assert await here.begins(session, "sleep 60", "long")
        with pytest.raises(ServiceError) as failure:
            await there.cancel(session, "long")
        assert (refusal(failure), failure.value.endpoint) == ("WRONG_ENDPOINT", right)
        assert await here.cancel(session, "long")


async def test_a_close_finds_its_session_and_is_final_everywhere(client: Client) -> None:
    (_, session), (wrong, _) = (await one_at_each(client)).items()
    async with connected(wrong) as there:
        assert await there.close(session)
        assert not await there.close(session)
        for ask in (there.say(session, "x"), client.say(session, "x"), there.open(session)):
            with pytest.raises(ServiceError) as failure:
                await ask
            assert refusal(failure) == "SESSION_CLOSED"


async def test_every_process_is_healthy_and_lists_the_tools(client: Client) -> None:
    for endpoint in (client.address, *await one_at_each(client)):
        async with connected(endpoint) as there:
            assert await there.health() == health_pb2.HealthCheckResponse.SERVING
            listed = await rpc(there.stub.ListTools, pb.ListToolsRequest(), timeout=20)
            assert [tool.name for tool in listed.tools] == ["notes"]
