"""Session hosts on a real Ray cluster of two nodes, bound to loopback, one of which dies."""

from __future__ import annotations

import asyncio
import urllib.request
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support import workers
from tests.support.net import free_port
from tests.support.ray_cluster import ENVIRONMENT, RayCluster, ray_cluster
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb

from .conftest import Service, start_service

pytestmark = pytest.mark.slow

HOSTS, SESSIONS, APART = 8, 1000, 20
PLUGIN = '''
import asyncio, os
from toolsvc import Tool

class Count(Tool):
    """Counts its calls; `pid` tells the process, and a path is waited for, uncounted, beside
    which the session leaves a file."""
    name = "count"
    stateful = True
    async def open(self, session):
        return [0]
    async def call(self, state, call):
        text = call.arguments["text"]
        if text.startswith("/"):
            open(f"{text}.{call.session.session_id}", "w").close()
            while not os.path.exists(text):
                await asyncio.sleep(0.05)
        if text.startswith(("/", "pid")):
            return str(os.getpid())
        if text == "gpus":
            return os.environ["CUDA_VISIBLE_DEVICES"]
        state[0] += 1
        return str(state[0])

class Large(Count):
    name = "large"
    memory_bytes = 2 << 30

class Fast(Count):
    name = "fast"
    gpus = 1
'''
Until = Callable[[Callable[[], bool]], Awaitable[None]]


class Client(workers.Client):
    async def open_one(self, session: str, *, lease: int = 300, queue_limit: int = 100) -> None:
        """With the one tool that its name begins with."""
        request = pb.OpenSessionRequest(
            session_id=session,
            owner="tests",
            tools=[session.partition("-")[0]],
            lease=Duration(seconds=lease),
            queue_limit=Duration(seconds=queue_limit),
        )
        opened = await rpc(self.stub.OpenSession, request, timeout=120)
        assert opened.endpoint == ""

    async def ask(self, session: str, text: str = "one more") -> str:
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
        return int(await self.ask(session, "pid"))


async def each(names: list[str], ask: Callable[[str], Awaitable[Any]]) -> dict[str, Any]:
    """The answers of all, by name; sixty-four at once."""
    free = asyncio.Semaphore(64)

    async def one(name: str) -> Any:
        async with free:
            return await ask(name)

    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


@dataclass
class OnRay(Service):
    metrics: str

    def figure(self, name: str) -> float:
        """Of the metrics page."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=20) as page:
            lines = page.read().decode().splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def start_on_ray(log: Path, *arguments: str) -> OnRay:
    metrics = f"127.0.0.1:{free_port()}"
    service = start_service(
        log, *arguments, "--backend", "ray", "--metrics", metrics,
        "--host-cpus", "0.5", "--host-memory-mib", "256",
    )  # fmt: skip
    return OnRay(service.process, service.address, metrics)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        with ray_cluster(num_cpus=4, num_gpus=1, memory=64 << 30) as running:
            yield running


@pytest.fixture(scope="module")
def service(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRay]:
    """For all tests of the two nodes; the last of them ends it."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "count.py").write_text(PLUGIN, encoding="utf-8")
    running = start_on_ray(
        folder / "errors.log", str(folder / "count.py"), "--ray-address", cluster.address,
        "--hosts", str(HOSTS), "--max-sessions", str(SESSIONS + APART),
    )  # fmt: skip
    yield running
    running.process.kill()
    running.process.wait(20)


@pytest.fixture
async def client(service: Service) -> AsyncIterator[Client]:
    one = Client(service.address)
    async with one.channel:
        yield one


async def test_a_session_that_wants_a_gpu_has_an_actor_with_one(
    client: Client, until: Until
) -> None:
    both = ["fast-0", "fast-1"]
    await each(both, client.open_one)
    pids = await each(both, client.pid)
    assert len(set(pids.values())) == 2
    assert set((await each(both, lambda name: client.ask(name, "gpus"))).values()) == {"0"}
    with pytest.raises(ServiceError, match="QUEUE_LIMIT: session fast-2"):
        await client.open_one("fast-2", queue_limit=1)
    given_up = asyncio.create_task(client.open_one("fast-given-up"))
    while not await client.close("fast-given-up"):
        assert not given_up.done()
    with pytest.raises(ServiceError, match="SESSION_CLOSED"):
        await given_up
    opening = asyncio.create_task(client.open_one("fast-3"))
    assert await client.close("fast-0")
    await opening
    await until(lambda: not psutil.pid_exists(pids["fast-0"]))
    assert await each([*both, "fast-3"], client.ask) == {
        "fast-0": "SESSION_CLOSED",
        "fast-1": "1",
        "fast-3": "1",
    }
    assert (await each(["fast-1", "fast-3"], client.close)) == {"fast-1": True, "fast-3": True}


async def test_an_actor_ends_with_the_lease_of_its_session(client: Client, until: Until) -> None:
    await client.open_one("large-leased", lease=5)
    pid = await client.pid("large-leased")
    await until(lambda: not psutil.pid_exists(pid))
    assert await client.ask("large-leased") == "SESSION_CLOSED"
    assert await client.renew("tests", "large-leased") == (set(), {"large-leased"})


async def test_a_node_that_dies_takes_its_own_sessions_and_no_others(
    cluster: RayCluster, service: OnRay, client: Client, until: Until, tmp_path: Path
) -> None:
    shared = [f"count-{number}" for number in range(SESSIONS)]
    apart = [f"large-{number}" for number in range(APART)]
    names = shared + apart
    await asyncio.gather(each(shared, client.open_one), each(apart, client.open_one))
    at = await each(names, client.pid)
    assert len({at[name] for name in shared}) == HOSTS
    assert len({at[name] for name in names}) == HOSTS + APART
    node = {pid: cluster.node_of(pid) for pid in set(at.values())}
    lost = {name for name in names if node[at[name]] == cluster.second}
    kept = set(names) - lost
    for some in (shared, apart):
        assert lost.intersection(some)
        assert kept.intersection(some)
    assert set((await each(names, client.ask)).values()) == {"1"}
    waiting = {
        name: asyncio.create_task(client.ask(name, str(tmp_path / "go-on")))
        for some in (lost, kept)
        for name in (min(some), max(some))
    }
    await until(lambda: len(list(tmp_path.iterdir())) == len(waiting))
    cluster.kill_second()
    after = await each(sorted(set(names) - set(waiting)), client.ask)
    assert {reply for name, reply in after.items() if name in kept} == {"2"}
    assert {reply for name, reply in after.items() if name in lost} == {"SESSION_LOST"}
    (tmp_path / "go-on").touch()
    for name, call in waiting.items():
        assert await call == ("SESSION_LOST" if name in lost else str(at[name]))
    assert await client.renew("tests", *names) == (kept, lost)
    with pytest.raises(ServiceError, match="SESSION_LOST"):
        await client.open_one(min(lost))
    assert not await client.close(min(lost))

    assert await client.close(min(kept))
    await client.open_one("count-new")
    assert await client.ask("count-new") == "1"
    await until(lambda: service.figure("toolwright_toolsvc_hosts") == HOSTS)
    assert service.figure("toolwright_toolsvc_hosts_replaced_total") == len(
        {at[name] for name in lost.intersection(shared)}
    )
    assert service.figure("toolwright_toolsvc_sessions_lost_total") == len(
        lost.intersection(shared)
    )
    below = psutil.Process(cluster.head).children()
    actors = [one for one in below if one.name().startswith("ray::HostActor")]
    assert len(actors) == HOSTS + len(kept.intersection(apart))
    service.process.kill()
    assert not psutil.wait_procs(actors, timeout=20)[1]
