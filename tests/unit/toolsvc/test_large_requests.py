"""Megabytes of numbers in a request: the loop serves others while they are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from engine.core.tools.requests import open_request
from tests.support.waiting import PATIENCE
from toolsvc.edge.large import LARGE, converted, is_large
from toolsvc.edge.service import ToolServicer
from toolsvc.edge.wire import open_from_proto
from toolsvc.host.host import Host
from toolsvc.plugin.tool import Tool
from toolsvc.types import Call, SessionInfo
from toolwright import json_data, wire
from toolwright.recipe import Tool as ToolTable
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Task

pytestmark = pytest.mark.quick
MANY = 200_000
BEATS = 5
HUGE = 2**60


class Keeps(Tool):
    """Keeps the metadata that it was opened with."""

    name = "keeps"
    stateful = True

    async def open(self, session: SessionInfo) -> Any:
        return session.metadata

    async def call(self, state: Any, call: Call) -> str:
        return str(len(state["n"]) + len(call.metadata.get("n", ())))


async def beats(work: Coroutine[Any, Any, Any]) -> tuple[int, Any]:
    """How often the loop came by while the work was done, and what came of it."""
    count = 0
    task = asyncio.ensure_future(work)
    async with asyncio.timeout(PATIENCE):
        while not task.done():
            await asyncio.sleep(0)
            count += 1
    return count, await task


def as_struct() -> dict[str, Any]:
    return {"metadata": wire.struct({"n": [0.5] * MANY})}


def as_text() -> dict[str, Any]:
    return {"metadata_json": json.dumps({"n": [1] * (MANY - 1) + [HUGE]})}


@pytest.mark.parametrize("metadata", [as_struct, as_text])
async def test_the_service_reads_them_beside_its_other_work(
    metadata: Callable[[], dict[str, Any]],
) -> None:
    async with Host([Keeps()]) as host:
        service = ToolServicer(host, "test")
        opening = pb.OpenSessionRequest(session_id="s", owner="o", **metadata())
        count, _ = await beats(service.OpenSession(opening, None))
        assert count > BEATS
        calling = pb.CallToolRequest(
            session_id="s", call_id="c", action="<keeps>a</keeps>", **metadata()
        )
        count, answer = await beats(service.CallTool(calling, None))
        assert count > BEATS
        assert answer.result.observation[0].text == str(2 * MANY)


@pytest.mark.parametrize("last", [0.5, HUGE])
async def test_the_engine_writes_them_beside_its_other_work(last: float) -> None:
    table = ToolTable(service="127.0.0.1:1")
    task = Task(id="t", metadata={"n": [0.5] * MANY + [last]})
    count, request = await beats(open_request("s", "owner", table, task, ()))
    assert count > BEATS
    assert wire.mapping(request.metadata, request.metadata_json)["n"][-1] == last


async def test_a_large_request_is_refused_as_a_small_one() -> None:
    small = pb.OpenSessionRequest(session_id="s", owner="o", metadata_json='{"a": 1')
    large = pb.OpenSessionRequest(session_id="s", owner="o", metadata_json='{"a": 1' * LARGE)
    assert is_large(large) and not is_large(small)
    for request in (small, large):
        with pytest.raises(Exception, match="metadata_json is ") as failure:
            await converted(open_from_proto, request)
        assert type(failure.value).__name__ == "ServiceError"


@pytest.mark.parametrize(
    "text",
    ['{"a": [1, -2.5e3, 12345678901234567890, true, null, "\\u00e9"]}', '{"a": {"b": [[], {}]}}',
     "[" * 100, '{"a": "\\ud800"}', '{"\\ud800": 1}', '{"a": 1}x', "[1,]", '"x', "NaN", ""],
)  # fmt: skip
def test_both_ways_of_reading_agree(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> Any:
        try:
            return repr(json_data.read_exact(text))
        except ValueError:
            return ValueError

    at_once = read()
    monkeypatch.setattr(json_data, "LARGE_TEXT", -1)
    assert read() == at_once
