"""A service as tests speak to it: plain requests, and refusals."""

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from toolwright.rpc.channel import call as rpc
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc


def seconds(value: float) -> Duration:
    return Duration(seconds=int(value), nanos=int(value % 1 * 1e9))


class Client:
    """What these tests say to a service."""

    def __init__(self, address: str) -> None:
        self.channel = open_channel(address)
        self.stub: Any = tool_pb2_grpc.ToolServiceStub(self.channel)

    async def open(self, **fields: Any) -> str:
        request = pb.OpenSessionRequest(
            **{
                "session_id": f"s-{uuid.uuid4().hex}",
                "owner": "tests",
                "lease": seconds(60),
                **fields,
            }
        )
        opened = await rpc(self.stub.OpenSession, request, timeout=30)
        assert opened.session_id == request.session_id
        return request.session_id

    async def call(self, session: str, action: str, call_id: str = "", **fields: Any) -> Any:
        request = pb.CallToolRequest(
            session_id=session, call_id=call_id or uuid.uuid4().hex, action=action, **fields
        )
        return await rpc(self.stub.CallTool, request, timeout=40)

    async def python(self, session: str, code: str, call_id: str = "", **fields: Any) -> Any:
        answer = await self.call(session, f"<python> {code}</python>", call_id, **fields)
        assert answer.HasField("result"), answer
        return answer.result

    async def text(self, session: str, code: str) -> str:
        result = await self.python(session, code)
        assert not result.HasField("error"), result
        return result.observation[0].text


@contextlib.contextmanager
def refused(reason: int) -> Iterator[Any]:
    with pytest.raises(ServiceError) as failure:
        yield failure
    assert failure.value.reason == reason, failure.value
