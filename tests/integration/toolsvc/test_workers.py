"""Several workers behind one address: real processes, real gRPC, real deaths."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.support.net import free_port
from toolwright.rpc.channel import backoff, may_retry, open_channel
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

from .conftest import Service, start_service

PLUGIN = '''
import asyncio, os
from toolsvc import Tool

class Notes(Tool):
    """A list of what was said; `sleep` sleeps, `pid` tells the process."""
    name = "notes"
    stateful = True
    async def open(self, session):
        return []
    async def call(self, state, call):
        text = call.arguments["text"]
        if text == "pid":
            return str(os.getpid())
        if text.startswith("sleep"):
            await asyncio.sleep(float(text.split()[1]))
        state.append(text)
        return ",".join(state)
'''
Until = Callable[[Callable[[], bool]], Awaitable[None]]


class Client:
    """One connection; endpoints of sessions are left to the test."""

    def __init__(self, address: str, **how: Any) -> None:
        self.address = address
        self.channel = open_channel(address, **how)
        self.stub: Any = tool_pb2_grpc.ToolServiceStub(self.channel)

    async def open(self, session: str, **fields: Any) -> str:
        """The endpoint that holds it."""
        request = pb.OpenSessionRequest(session_id=session, **{"owner": "tests", **fields})
        opened = await rpc(self.stub.OpenSession, request, timeout=30)
        return str(opened.endpoint)

    async def say(self, session: str, text: str, call_id: str = "") -> str:
        request = pb.CallToolRequest(
            session_id=session,
            call_id=call_id or uuid.uuid4().hex,
            action=f"<notes>{text}</notes>",
        )
        answer = await rpc(self.stub.CallTool, request, timeout=30)
        return str(answer.result.observation[0].text)

    async def health(self) -> int:
        stub: Any = health_pb2_grpc.HealthStub(self.channel)
        answer = await rpc(stub.Check, health_pb2.HealthCheckRequest(), timeout=20)
        return int(answer.status)

    async def begins(self, session: str, text: str, call_id: str) -> bool:
        """Whether it is running and not answered yet."""
        request = pb.CallToolRequest(
            session_id=session, call_id=call_id, action=f"<notes>{text}</notes>", wait=Duration()
        )
        return bool((await rpc(self.stub.CallTool, request, timeout=30)).HasField("running"))

    async def cancel(self, session: str, call_id: str) -> bool:
        request = pb.CancelCallRequest(session_id=session, call_id=call_id)
        return bool((await rpc(self.stub.CancelCall, request, timeout=30)).cancelled)

    async def close(self, session: str) -> bool:
        request = pb.CloseSessionRequest(session_id=session)
        return bool((await rpc(self.stub.CloseSession, request, timeout=30)).closed)

    async def renew(self, owner: str, *believed: str) -> tuple[set[str], set[str]]:
        """Held and lost."""
        request = pb.RenewLeasesRequest(
            owner=owner, session_ids=believed, lease=Duration(seconds=60)
        )
        answer = await rpc(self.stub.RenewLeases, request, timeout=30)
        return set(answer.held), set(answer.lost)


@asynccontextmanager
async def connected(address: str, **how: Any) -> AsyncIterator[Client]:
    client = Client(address, **how)
    try:
        yield client
    finally:
        await client.channel.close()


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plugin") / "notes.py"
    path.write_text(PLUGIN)
    return str(path)


@pytest.fixture(scope="module")
def service(plugin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two workers, for all tests that leave them alive."""
    log = tmp_path_factory.mktemp("service") / "errors.log"
    running = start_service(log, plugin, "--workers", "2")
    yield running
    running.process.terminate()
    assert running.process.wait(40) == 0, log.read_text()


@pytest.fixture
async def client(service: Service) -> AsyncIterator[Client]:
    async with connected(service.address) as one:
        yield one


def fresh() -> str:
    return f"s-{uuid.uuid4().hex}"


async def one_at_each(client: Client, **fields: Any) -> dict[str, str]:
    """A session on every one of two workers: session by endpoint."""
    at: dict[str, str] = {}
    while len(at) < 2:
        session = fresh()
        if at.setdefault(await client.open(session, **fields), session) != session:
            await client.close(session)
    return at


def refusal(failure: pytest.ExceptionInfo[ServiceError]) -> str:
    return failure.value.reason_name


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


async def test_opening_again_gives_the_same_session_whoever_is_asked(client: Client) -> None:
    at = await one_at_each(client)
    for endpoint, session in at.items():
        for other in at:
            async with connected(other) as there:
                assert await there.open(session) == endpoint
                with pytest.raises(ServiceError) as failure:
                    await there.open(session, owner="somebody else")
                assert refusal(failure) == "INVALID_REQUEST"


async def test_sixteen_at_once_through_all_doors_are_one_session(client: Client) -> None:
    at = await one_at_each(client)
    async with connected(next(iter(at))) as first, connected(list(at)[1]) as second:
        session = fresh()
        opened = await asyncio.gather(
            *(door.open(session) for door in (client, first, second) for _ in range(5))
        )
    assert len(set(opened)) == 1


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


async def test_what_nobody_holds_is_not_found_at_either(client: Client) -> None:
    for endpoint in await one_at_each(client):
        async with connected(endpoint) as there:
            for ask in (there.say(fresh(), "x"), there.cancel(fresh(), "c")):
                with pytest.raises(ServiceError) as failure:
                    await ask
                assert refusal(failure) == "SESSION_NOT_FOUND"
            assert not await there.close(fresh())


async def test_a_close_finds_its_session_and_is_final_everywhere(client: Client) -> None:
    (_, session), (wrong, _) = (await one_at_each(client)).items()
    async with connected(wrong) as there:
        assert await there.close(session)
        assert not await there.close(session)
        for ask in (there.say(session, "x"), client.say(session, "x"), there.open(session)):
            with pytest.raises(ServiceError) as failure:
                await ask
            assert refusal(failure) == "SESSION_CLOSED"


async def test_leases_are_renewed_on_all_workers_whoever_is_asked(client: Client) -> None:
    owner = uuid.uuid4().hex
    at = await one_at_each(client, owner=owner)
    for endpoint in at:
        async with connected(endpoint) as there:
            held, lost = await there.renew(owner, *at.values(), "gone")
            assert held == set(at.values())
            assert lost == {"gone"}


async def test_every_process_is_healthy_and_reflects(client: Client) -> None:
    for endpoint in (client.address, *await one_at_each(client)):
        async with connected(endpoint) as there:
            health: Any = health_pb2_grpc.HealthStub(there.channel)
            name = "toolwright.tool.v1.ToolService"
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name), timeout=20)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            reflection: Any = reflection_pb2_grpc.ServerReflectionStub(there.channel)
            ask = reflection_pb2.ServerReflectionRequest(list_services="")
            async for found in reflection.ServerReflectionInfo(iter([ask]), timeout=20):
                assert name in {one.name for one in found.list_services_response.service}
            listed = await rpc(there.stub.ListTools, pb.ListToolsRequest(), timeout=20)
            assert [tool.name for tool in listed.tools] == ["notes"]


async def test_a_dead_worker_loses_its_own_sessions_and_is_replaced(
    start: Callable[..., Service], plugin: str, until: Until
) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    service = start(plugin, "--workers", "2", "--metrics", metrics)
    supervisor = psutil.Process(service.process.pid)
    async with connected(service.address) as client:
        (dying, lost), (living, kept) = (await one_at_each(client, owner="me")).items()
        async with connected(dying) as there, connected(living) as here:
            await here.say(kept, "a")
            victim = int(await there.say(lost, "pid"))
            os.kill(victim, signal.SIGKILL)
            await until(lambda: not psutil.pid_exists(victim))
            with pytest.raises(TransportError) as failure:
                await there.say(lost, "x")
            assert failure.value.code is grpc.StatusCode.UNAVAILABLE
            # Placed while the slot is empty, some of them by a hash that will point there again.
            placed = [fresh() for _ in range(8)]
            for session in placed:
                assert await eventually(lambda s=session: here.open(s, owner="me")) == living
                await here.say(session, session)
            with pytest.raises(ServiceError) as refused:
                await here.say(lost, "x")
            assert refusal(refused) == "SESSION_NOT_FOUND"
            held, gone = await eventually(lambda: here.renew("me", lost, kept))
            assert held == {kept, *placed}
            assert gone == {lost}
            assert await here.say(kept, "b") == "a,b"

        await until(lambda: "toolsvc_workers_replaced_total 1.0" in page(metrics))
        assert len(supervisor.children()) == 2
        async with connected(service.address) as again:
            fresh_ones = await one_at_each(again)
            assert living in fresh_ones
            assert dying not in fresh_ones
            for endpoint in fresh_ones:
                async with connected(endpoint) as door:
                    assert [await door.open(s, owner="me") for s in placed] == [living] * 8
        async with connected(living) as here:
            assert [await here.say(s, "x") for s in placed] == [f"{s},x" for s in placed]
        text = page(metrics)
    assert "toolsvc_workers 2.0" in text
    assert 'toolsvc_sessions{worker="0"}' in text
    assert 'toolsvc_sessions{worker="1"}' in text
    assert 'toolsvc_calls_total{outcome="ok",tool="notes",worker=' in text


@pytest.fixture
def gated(plugin: str, tmp_path: Path) -> tuple[str, Path]:
    """The plugin as a file that takes until the other file is gone to load."""
    mine, closed = tmp_path / "mine.py", tmp_path / "closed"
    wait = f"import os, time\nwhile os.path.exists({str(closed)!r}):\n    time.sleep(0.01)\n"
    mine.write_text(wait + Path(plugin).read_text())
    return str(mine), closed


async def test_health_says_so_while_no_worker_lives(
    start: Callable[..., Service], gated: tuple[str, Path]
) -> None:
    mine, closed = gated
    service = start(mine, "--workers", "2")
    closed.touch()  # no worker can start from now on
    for worker in psutil.Process(service.process.pid).children():
        worker.kill()
    async with connected(service.address) as client:
        assert await eventually(client.health) == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(ServiceError) as failure:
            await client.open(fresh())
        assert (refusal(failure), failure.value.retry_after) == ("BACKEND_DOWN", 0.2)
        closed.unlink()
        session = fresh()
        endpoint = await eventually(lambda: client.open(session))
        async with connected(endpoint) as there:
            assert await there.say(session, "a") == "a"
    async with connected(service.address) as client:
        assert await eventually(client.health) == health_pb2.HealthCheckResponse.SERVING


async def eventually(ask: Callable[[], Awaitable[Any]]) -> Any:
    """What a client does where nobody is there, or an error says when to come again."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await ask()
            except (ServiceError, TransportError) as error:
                if not may_retry(error):
                    raise
                await asyncio.sleep(backoff(0, error))


def page(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        text: str = answer.read().decode()
    return text


async def test_sigterm_lets_calls_end_and_leaves_no_process(
    start: Callable[..., Service], plugin: str
) -> None:
    service = start(plugin, "--workers", "2")
    below = psutil.Process(service.process.pid).children(recursive=True)
    async with connected(service.address) as client:
        at = await one_at_each(client)
        async with connected(next(iter(at))) as first, connected(list(at)[1]) as second:
            doors = list(zip((first, second), at.values(), strict=True))
            for door, session in doors:
                assert await door.begins(session, "sleep 1", "call")
            service.process.terminate()
            ends = (door.say(session, "sleep 1", "call") for door, session in doors)
            assert await asyncio.gather(*ends) == ["sleep 1", "sleep 1"]
    assert await asyncio.to_thread(service.process.wait, 40) == 0
    assert not psutil.wait_procs(below, timeout=5)[1]


def test_workers_and_their_jails_end_with_a_supervisor_that_is_killed(
    start: Callable[..., Service],
) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    service = start(
        "python", "--workers", "2", "--ready", "2", "--shards", "2", "--metrics", metrics
    )
    text = page(metrics)
    for worker in (0, 1):
        assert f'toolsvc_sandboxes_ready{{tool="python",worker="{worker}"}}' in text
        assert f'toolsvc_jails_replaced_total{{tool="python",worker="{worker}"}} 0.0' in text
    below = psutil.Process(service.process.pid).children(recursive=True)
    assert len(below) > 6
    service.process.kill()
    assert not psutil.wait_procs(below, timeout=20)[1]


async def test_workers_send_each_other_the_token(
    start: Callable[..., Service], plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLWRIGHT_TOKEN", "secret")
    service = start(plugin, "--workers", "2")
    async with connected(service.address, token="secret") as client:
        for endpoint, session in (await one_at_each(client)).items():
            async with connected(endpoint, token="secret") as there:
                assert await there.say(session, "a") == "a"
            async with connected(endpoint) as stranger:
                with pytest.raises(TransportError, match="UNAUTHENTICATED"):
                    await stranger.say(session, "b")


async def test_a_unix_socket_has_sockets_beside_it(
    start: Callable[..., Service], plugin: str, tmp_path: Path
) -> None:
    address = f"unix:{tmp_path / 'tools'}"
    start(plugin, "--workers", "2", "--listen", address)
    async with connected(address) as client:
        at = await one_at_each(client)
        assert set(at) == {f"{address}.0", f"{address}.1"}
        for endpoint, session in at.items():
            async with connected(endpoint) as there:
                assert await there.say(session, "a") == "a"


async def test_advertised_workers_listen_where_they_are_told(
    start: Callable[..., Service], plugin: str
) -> None:
    first = free_port()
    service = start(
        plugin, "--workers", "2", "--listen", "0.0.0.0:0", "--insecure",
        "--advertise", "localhost", "--worker-port", str(first),
    )  # fmt: skip
    port = service.address.rpartition(":")[2]
    async with connected(f"127.0.0.1:{port}") as client:
        at = await one_at_each(client)
        assert set(at) == {f"localhost:{first}", f"localhost:{first + 1}"}
        for endpoint, session in at.items():
            async with connected(endpoint) as there:
                assert await there.say(session, "a") == "a"


def test_a_tool_that_cannot_start_ends_the_service_in_one_sentence(
    serve_fails: Callable[..., str], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_like_it")
    line = serve_fails(str(broken), "--workers", "2", environment=dict(os.environ))
    assert "nothing_like_it" in line
    broken.write_text("import os; os._exit(3)")
    line = serve_fails(str(broken), "--workers", "2", environment=dict(os.environ))
    assert "died at its start, with exit code 3" in line


def test_a_service_that_can_no_longer_start_any_worker_ends(
    start: Callable[..., Service], plugin: str, tmp_path: Path
) -> None:
    """All workers die, and the tool's file is gone: no loop without end."""
    mine = tmp_path / "mine.py"
    mine.write_text(Path(plugin).read_text())
    service = start(str(mine), "--workers", "2")
    mine.unlink()
    for worker in psutil.Process(service.process.pid).children():
        worker.kill()
    assert service.process.wait(40) == 1


def test_a_port_that_others_hold_is_not_shared(
    serve_fails: Callable[..., str], plugin: str, service: Service
) -> None:
    line = serve_fails(
        plugin, "--workers", "2", "--listen", service.address, environment=dict(os.environ)
    )
    assert service.address in line
    assert "in use" in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--listen", "0.0.0.0:0", "--insecure"), "--advertise HOST"),
        (("--listen", "0.0.0.0:0", "--advertise", "localhost"), "TOOLWRIGHT_TOKEN"),
    ],
)
def test_what_is_missing_is_said(
    serve_fails: Callable[..., str], plugin: str, arguments: tuple[str, ...], says: str
) -> None:
    environment = {**os.environ, "TOOLWRIGHT_TOKEN": ""}
    assert says in serve_fails(plugin, "--workers", "2", *arguments, environment=environment)
