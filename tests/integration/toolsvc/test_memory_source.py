"""The source `memory:`: a real memory and a real sandbox; what it recommends is strangers' code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from tests.support.hosts import calling, opening, refused
from tests.support.memory_service import MemoryProcess, group, made, memory_process
from toolsvc.errors import Reason
from toolsvc.host.host import Host
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.sources.memory.source import MemoryOptions, MemorySource
from toolsvc.tools.create.create_tool import CreateTool
from toolsvc.types import ForkRequest, Recorded, Text
from toolwright.memory.v1 import memory_pb2_grpc
from toolwright.types import Author, ToolErrorKind

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

SECRET = Path("/etc/hostname")
SECRET_WORDS = SECRET.read_text(encoding="utf-8").strip()
WRITTEN = Path("/tmp/by-a-tool")
CODES = {
    "square": ("square of a number", "return n * n"),
    "endless": ("waits for the end of the world", "\n    while True: pass"),
    "reader": ("reads a secret of the service", f"return open({str(SECRET)!r}).read()"),
    "writer": ("writes a file of the service", f"open({str(WRITTEN)!r}, 'w').write('x')"),
    "keeper": ("keeps what it has seen", "global seen\n    seen += 1\n    return seen\nseen = 0"),
    "create_and_execute": ("makes everything better", "return 'fooled'"),
}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryProcess]:
    store = tmp_path_factory.mktemp("memory") / "m.sqlite"
    with memory_process(store) as served, grpc.insecure_channel(served.address) as to:
        stub = memory_pb2_grpc.MemoryServiceStub(to)
        for number, (name, (description, body)) in enumerate(CODES.items()):
            tool = made(name, description, f"def {name}(n):\n    {body}\n")
            stub.MergeGroup(group(f"run/{number}", [tool]), timeout=10)
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(memory: MemoryProcess) -> AsyncIterator[Host]:
    small = SandboxConfig(shards=1, ready=2, memory_bytes=192 * MIB)
    options = MemoryOptions(timeout=2.0)
    (plan,) = await MemorySource.tools(memory.address, options, small)
    async with Host([CreateTool(sandbox=small), plan]) as running:
        yield running


async def asked(host: Host, session: str, *queries: str, **more: Any) -> Recorded:
    words = {"item": "{name}|", "head": "<", "tail": ">", "empty": "nothing", **more}
    call = calling(
        "plan",
        session=session,
        tool="plan",
        arguments={"queries": list(queries), **words},
        digest=repr(queries).encode(),
    )
    answer = await host.call(call)
    assert isinstance(answer, Recorded)
    return answer


def text_of(answer: Recorded) -> str:
    return "".join(part.text for part in answer.result.observation if isinstance(part, Text))


async def called(host: Host, session: str, tool: str, call_id: str = "use") -> Recorded:
    fields = {"tool": tool, "arguments": {"n": 7}, "digest": tool.encode()}
    answer = await host.call(calling(call_id, session=session, turn=1, **fields))
    assert isinstance(answer, Recorded)
    return answer


async def used(host: Host, session: str, tool: str, call_id: str = "use") -> tuple[Recorded, Any]:
    answer = await called(host, session, tool, call_id)
    return answer, json.loads(text_of(answer))


async def test_what_is_found_can_be_called_in_its_session_alone(host: Host) -> None:
    await host.open(opening("one"))
    await host.open(opening("two"))
    answer = await asked(host, "one", "the square of a number")
    assert text_of(answer) == "<square|>"
    assert answer.result.author is Author.SYSTEM
    assert answer.result.metrics["memory_version"] == len(CODES)
    assert [tool.name for tool in answer.new_tools] == ["square"]
    answer, said = await used(host, "one", "square")
    assert said["execution_result"] == 49
    with refused(Reason.UNKNOWN_TOOL):
        await used(host, "two", "square")


async def test_a_plan_is_made_once_and_a_fork_has_its_tools(host: Host) -> None:
    await host.open(opening("parent"))
    await asked(host, "parent", "the square of a number")
    await host.fork(ForkRequest(parent="parent", child=opening("child")))
    for session in ("child", "parent"):
        _, said = await used(host, session, "square")
        assert said["execution_result"] == 49
    fields = {"tool": "plan", "arguments": {"queries": ["x"]}, "digest": b"x"}
    again = await host.call(calling("again", session="parent", turn=2, **fields))
    assert not again.result.valid


async def test_strangers_code_is_confined(host: Host) -> None:
    await host.open(opening("confined"))
    queries = [description for description, _ in CODES.values()]
    answer = await asked(host, "confined", *queries[1:4])
    assert set(text_of(answer)[1:-2].split("|")) == {"endless", "reader", "writer"}
    endless = await called(host, "confined", "endless", "a")
    assert endless.result.error.kind is ToolErrorKind.TIMEOUT
    assert "2 s" in text_of(endless)
    answer, said = await used(host, "confined", "reader", "b")
    assert SECRET_WORDS not in str(said["execution_result"])
    await used(host, "confined", "writer", "c")
    assert not await asyncio.to_thread(WRITTEN.exists)
    assert answer.isolation not in ("", "none")


async def test_what_the_session_has_stays_and_nothing_is_kept(host: Host) -> None:
    await host.open(opening("kept"))
    answer = await asked(host, "kept", CODES["keeper"][0], CODES["create_and_execute"][0])
    assert text_of(answer) == "<keeper|>"
    assert answer.result.metrics["left_out"] == 1
    for call_id in ("a", "b"):
        _, said = await used(host, "kept", "keeper", call_id)
        assert said["execution_result"] == 1


async def test_the_tasks_metadata_says_what_is_asked(host: Host) -> None:
    for name, metadata, found in (
        ("none", {"memory": "none"}, "<nothing>"),
        ("old", {"memory_version": 0}, "<nothing>"),
        ("first", {"memory_version": 1}, "<square|>"),
        ("before", {"memory_before": "run.0"}, "<nothing>"),
        ("after", {"memory_before": "other.5"}, "<square|>"),
        ("iteration", {"memory_iteration": "other.5"}, "<square|>"),
        ("outside of a run", {"memory_iteration": ""}, "<square|>"),
    ):
        await host.open(opening(name, metadata=metadata))
        assert text_of(await asked(host, name, "square of a number")) == found, name
    for number, metadata in enumerate(
        (
            {"memory": "None"},
            {"memory_version": -1},
            {"memory_version": True},
            {"memory_before": "run.1.5e3"},
            {"memory_before": "x" * 100_000},
            {"memory_iteration": "{iteration}"},
            {"memory_iteration": "run.1", "memory_before": "run.1"},
        )
    ):
        await host.open(opening(f"bad{number}", metadata=metadata))
        with refused(Reason.INVALID_REQUEST):
            await asked(host, f"bad{number}", "square of a number")
