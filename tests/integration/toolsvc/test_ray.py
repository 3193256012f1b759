"""Session hosts on a real Ray cluster of two nodes, bound to loopback, one of which dies."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from google.protobuf.duration_pb2 import Duration

from tests.support.net import free_port
from tests.support.ray_cluster import ENVIRONMENT, RayCluster, ray_cluster
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

from .conftest import Service, start_service

HOSTS, SESSIONS, APART = 8, 1000, 20
PLUGIN = '''
import asyncio, os
from toolsvc import Tool

class Count(Tool):
    """Counts its calls; `pid` tells the process, and a path is waited for, uncounted."""
    name = "count"
    stateful = True
    async def open(self, session):
        return [0]
    async def call(self, state, call):
        text = call.arguments["text"]
        if text.startswith("/"):
            while not os.path.exists(text):
                await asyncio.sleep(0.05)
        if text.startswith(("/", "pid")):
            return str(os.getpid())
        state[0] += 1
        return str(state[0])

class Large(Count):
    name = "large"
    memory_bytes = 2 << 30
'''


class Client:
    def __init__(self, address: str) -> None:
        self.channel = open_channel(address)
        self.stub: Any = tool_pb2_grpc.ToolServiceStub(self.channel)

    async def open(self, session: str, tool: str = "count") -> None:
        request = pb.OpenSessionRequest(
            session_id=session, owner="tests", tools=[tool], lease=Duration(seconds=300),
            queue_limit=Duration(seconds=120),
        )  # fmt: skip
        opened = await rpc(self.stub.OpenSession, request, timeout=120)
        assert opened.endpoint == ""

    async def say(self, session: str, text: str = "one more") -> str:
        """What the session's tool answers, or the reason of the refusal."""
        tool = session.partition("-")[0]
        request = pb.CallToolRequest(
            session_id=session,
            call_id=uuid.uuid4().hex,
            action=f"<{tool}>{text}</{tool}>",
        )
        try:
            answer = await rpc(self.stub.CallTool, request, timeout=40)
        except ServiceError as error:
            return error.reason_name
        return str(answer.result.observation[0].text)

    async def pid(self, session: str) -> int:
        """Of the process that the session is in."""
        return int(await self.say(session, "pid"))

    async def close(self, session: str) -> bool:
        request = pb.CloseSessionRequest(session_id=session)
        return bool((await rpc(self.stub.CloseSession, request, timeout=40)).closed)

    async def renew(self, *believed: str) -> tuple[set[str], set[str]]:
        """Held and lost."""
        request = pb.RenewLeasesRequest(
            owner="tests", session_ids=believed, lease=Duration(seconds=300)
        )
        answer = await rpc(self.stub.RenewLeases, request, timeout=40)
        return set(answer.held), set(answer.lost)


async def each(names: list[str], ask: Callable[[str], Awaitable[Any]]) -> dict[str, Any]:
    """The answers of all, by name; sixty-four at once."""
    free = asyncio.Semaphore(64)

    async def one(name: str) -> Any:
        async with free:
            return await ask(name)

    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


def figure(page_at: str, name: str) -> float:
    """Of the service's metrics page."""
    with urllib.request.urlopen(f"http://{page_at}/metrics", timeout=20) as page:
        lines = page.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plugin") / "count.py"
    path.write_text(PLUGIN)
    return path


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        with ray_cluster(num_cpus=4, memory=64 << 30) as running:
            yield running


async def test_a_node_that_dies_takes_its_own_sessions_and_no_others(
    cluster: RayCluster, plugin: Path, start: Callable[..., Service], until: Any, tmp_path: Path
) -> None:
    metrics, go_on = f"127.0.0.1:{free_port()}", tmp_path / "go-on"
    service = start(
        str(plugin), "--backend", "ray", "--ray-address", cluster.address,
        "--hosts", str(HOSTS), "--host-cpus", "0.5", "--host-memory-mib", "256",
        "--max-sessions", str(SESSIONS + APART + 1), "--metrics", metrics,
    )  # fmt: skip
    client = Client(service.address)
    import time; T=time.time(); print()
    async with client.channel:
        shared = [f"count-{number}" for number in range(SESSIONS)]
        apart = [f"large-{number}" for number in range(APART)]
        names = shared + apart
        await asyncio.gather(
            each(shared, client.open), *(client.open(name, "large") for name in apart)
        )
        print("opened", time.time()-T)
        at = await each(names, client.pid)
        assert len({at[name] for name in shared}) == HOSTS
        assert len({at[name] for name in names}) == HOSTS + APART
        node = {pid: cluster.node_of(pid) for pid in set(at.values())}
        lost = {name for name in names if node[at[name]] == cluster.second}
        kept = set(names) - lost
        for some in (shared, apart):
            assert lost.intersection(some)
            assert kept.intersection(some)
        assert set((await each(names, client.say)).values()) == {"1"}
        print("said", time.time()-T)
        waiting = {
            name: asyncio.create_task(client.say(name, str(go_on)))
            for some in (lost, kept)
            for name in (min(some), max(some))
        }
        cluster.kill_second()
        print("killed", time.time()-T)
        after = await each(sorted(set(names) - set(waiting)), client.say)
        print("after", time.time()-T)
        assert {reply for name, reply in after.items() if name in kept} == {"2"}
        assert {reply for name, reply in after.items() if name in lost} == {"SESSION_LOST"}
        go_on.touch()
        for name, call in waiting.items():
            assert await call == ("SESSION_LOST" if name in lost else str(at[name]))
        assert await client.renew(*names) == (kept, lost)
        with pytest.raises(ServiceError, match="SESSION_LOST"):
            await client.open(min(lost))
        assert not await client.close(min(lost))

        assert await client.close(min(kept))
        await client.open("count-new")
        assert await client.say("count-new") == "1"
        print("before until", time.time()-T)
        await until(lambda: figure(metrics, "toolsvc_hosts") == HOSTS)
        assert figure(metrics, "toolsvc_hosts_replaced_total") == len(
            {at[name] for name in lost.intersection(shared)}
        )
        assert figure(metrics, "toolsvc_sessions_lost_total") == len(lost.intersection(shared))
        print("replaced", time.time()-T)
        below = psutil.Process(cluster.head).children()
        actors = [one for one in below if one.name().startswith("ray::HostActor")]
        assert len(actors) == HOSTS + len(kept.intersection(apart))
        service.process.terminate()
        assert await asyncio.to_thread(service.process.wait, 60) == 0
        print("ended", time.time()-T)
    assert not psutil.wait_procs(actors, timeout=10)[1]
