"""The python tool of a real process: real gRPC, real jails."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.support.service import Client, refused, seconds
from tests.support.waiting import passes
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.errors import TransportError
from toolwright.tool.v1 import tool_pb2 as pb

pytestmark = pytest.mark.quick


@pytest.fixture
async def client(service: Any) -> AsyncIterator[Client]:
    one = Client(service.address)
    yield one
    await one.channel.close()


async def test_a_session_keeps_its_variables_and_its_isolation_is_stamped(client: Client) -> None:
    session = await client.open()
    assert await client.text(session, "x = 6\nx * 7") == "42"
    result = await client.python(session, "print(x)   ", tool="python")
    assert result.observation[0].text == "6"
    assert result.valid
    assert result.tool == "python"
    assert result.isolation in ("full", "compat", "per-session")
    assert result.run.nanos > 0
    other = await client.open()
    assert "NameError" in (await client.python(other, "x")).observation[0].text


async def test_a_session_that_its_code_ended_is_said_to_be_lost_by_all_calls(
    client: Client,
) -> None:
    session = await client.open()
    result = await client.python(session, "import os; os._exit(1)", "dies")
    assert result.error.kind == reasons.TOOL_ERROR_KIND_CRASHED
    assert result.error.session_lost
    more = await client.python(session, "1")
    assert (more.error.kind, more.error.session_lost) == (reasons.TOOL_ERROR_KIND_CRASHED, True)
    again = await client.python(session, "import os; os._exit(1)", "dies")
    assert again == result
    renewed = await rpc(
        client.stub.RenewLeases,
        pb.RenewLeasesRequest(owner="tests", session_ids=[session]),
        timeout=10,
    )
    assert list(renewed.lost) == []


async def test_a_cut_rpc_does_not_cut_the_call(client: Client) -> None:
    session = await client.open()
    request = pb.CallToolRequest(
        session_id=session,
        call_id="cut",
        action="<python>import time; time.sleep(0.5); n = globals().get('n', 0) + 1; n</python>",
    )
    with pytest.raises(TransportError) as failure:
        await rpc(client.stub.CallTool, request, timeout=0.1)
    assert failure.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
    answer = await rpc(client.stub.CallTool, request, timeout=20)
    assert answer.result.observation[0].text == "1"


async def test_queue_and_run_limits_are_two_things(client: Client) -> None:
    session = await client.open()
    first = asyncio.create_task(client.python(session, "import time; time.sleep(0.6)"))
    await passes(0.2, "the first call runs")
    with refused(reasons.ERROR_REASON_QUEUE_LIMIT) as failure:
        await client.python(session, "1", "second", queue_limit=seconds(0.1))
    assert failure.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert failure.value.retry_after is not None
    result = await client.python(session, "1", "second", run_limit=seconds(0.3))
    assert result.observation[0].text == "1"
    assert result.queued.ToTimedelta().total_seconds() > 0.1
    assert result.run.ToTimedelta().total_seconds() < 0.3
    await first


@pytest.mark.parametrize("method", ["SnapshotSession", "RestoreSession"])
async def test_what_is_not_served_says_so(client: Client, method: str) -> None:
    with refused(reasons.ERROR_REASON_NOT_SERVED) as failure:
        await rpc(getattr(client.stub, method), getattr(pb, f"{method}Request")(), timeout=10)
    assert failure.value.code is grpc.StatusCode.UNIMPLEMENTED


async def test_many_sessions_at_once(client: Client) -> None:
    sessions = await asyncio.gather(*(client.open() for _ in range(96)))
    answers = await asyncio.gather(
        *(client.text(session, f"print({i})") for i, session in enumerate(sessions))
    )
    assert answers == [str(i) for i in range(96)]
    closings = [pb.CloseSessionRequest(session_id=session) for session in sessions]
    await asyncio.gather(*(rpc(client.stub.CloseSession, one, timeout=20) for one in closings))
