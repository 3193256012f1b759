"""How workers die, are replaced, and end with their service: real processes, real deaths."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
import psutil
import pytest
from grpc_health.v1 import health_pb2

from tests.support.net import free_port
from tests.support.workers import NOTES, connected, eventually, fresh, one_at_each, refusal
from toolwright.rpc.errors import ServiceError, TransportError

from .conftest import Service

pytestmark = pytest.mark.quick

Until = Callable[[Callable[[], bool]], Awaitable[None]]


async def test_a_dead_worker_loses_its_own_sessions_and_is_replaced(
    start: Callable[..., Service], until: Until
) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    service = start(NOTES, "--workers", "2", "--metrics", metrics)
    front = psutil.Process(service.process.pid)
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
            # Placed while the slot is empty.
            placed = [fresh() for _ in range(8)]
            for session in placed:
                assert await eventually(lambda s=session: here.open(s, owner="me")) == living
                await here.say(session, session)
            with pytest.raises(ServiceError) as refused:
                await here.say(lost, "x")
            assert refusal(refused) == "SESSION_LOST"
            held, gone = await eventually(lambda: here.renew("me", lost, kept))
            assert held == {kept, *placed}
            assert gone == {lost}
            assert await here.say(kept, "b") == "a,b"

        await until(lambda: "toolwright_toolsvc_hosts_replaced_total 1.0" in page(metrics))
        assert len(front.children()) == 2
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
    assert "toolwright_toolsvc_hosts 2.0" in text
    assert 'toolwright_toolsvc_sessions{host="1"}' in text
    assert 'toolwright_toolsvc_calls_total{host="' in text


@pytest.fixture
def gated(tmp_path: Path) -> tuple[str, Path]:
    """The plugin as a file that takes until the other file is gone to load."""
    mine, closed = tmp_path / "mine.py", tmp_path / "closed"
    wait = f"import os, time\nwhile os.path.exists({str(closed)!r}):\n    time.sleep(0.01)\n"
    mine.write_text(wait + Path(NOTES).read_text(encoding="utf-8"), encoding="utf-8")
    return str(mine), closed


async def test_health_says_so_while_no_worker_lives(
    start: Callable[..., Service], gated: tuple[str, Path]
) -> None:
    mine, closed = gated
    probed = f"127.0.0.1:{free_port()}"
    service = start(mine, "--workers", "2", "--health", probed)
    async with connected(probed) as probe:
        assert await probe.health() == health_pb2.HealthCheckResponse.SERVING
    closed.touch()  # no worker can start from now on
    for worker in psutil.Process(service.process.pid).children():
        worker.kill()
    async with connected(service.address) as client:
        async with asyncio.timeout(20):
            while await client.health() != health_pb2.HealthCheckResponse.NOT_SERVING:
                pass
        async with connected(probed) as probe:
            assert await eventually(probe.health) == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(ServiceError) as failure:
            await client.open(fresh())
        assert (refusal(failure), failure.value.retry_after) == ("BACKEND_DOWN", 1.0)
        closed.unlink()
        session = fresh()
        endpoint = await eventually(lambda: client.open(session))
        async with connected(endpoint) as there:
            assert await there.say(session, "a") == "a"
    async with connected(service.address) as client:
        assert await eventually(client.health) == health_pb2.HealthCheckResponse.SERVING


def page(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        text: str = answer.read().decode()
    return text


async def test_sigterm_lets_calls_end_and_leaves_no_process(start: Callable[..., Service]) -> None:
    service = start(NOTES, "--workers", "2")
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


def test_workers_and_their_jails_end_with_a_front_that_is_killed(
    start: Callable[..., Service],
) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    service = start(
        "python", "--workers", "2", "--ready", "2", "--shards", "2", "--metrics", metrics
    )
    text = page(metrics)
    for worker in (0, 1):
        assert f'toolwright_toolsvc_sandboxes_ready{{host="{worker}",tool="python"}}' in text
        assert (
            f'toolwright_toolsvc_jails_replaced_total{{host="{worker}",tool="python"}} 0.0' in text
        )
    below = psutil.Process(service.process.pid).children(recursive=True)
    assert len(below) > 6
    service.process.kill()
    assert not psutil.wait_procs(below, timeout=20)[1]


def test_a_tool_that_cannot_start_ends_the_service_in_one_sentence(
    serve_fails: Callable[..., str], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_like_it", encoding="utf-8")
    line = serve_fails(str(broken), "--workers", "2", environment=dict(os.environ))
    assert "nothing_like_it" in line
    deadly = tmp_path / "deadly.py"
    deadly.write_text("import os; os._exit(3)", encoding="utf-8")
    line = serve_fails(str(deadly), "--workers", "2", environment=dict(os.environ))
    assert "died at its start, with exit code 3" in line


def test_a_service_that_can_no_longer_start_any_worker_ends(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    """All workers die, and the tool's file is gone: no loop without end."""
    mine = tmp_path / "mine.py"
    mine.write_text(Path(NOTES).read_text(encoding="utf-8"), encoding="utf-8")
    service = start(str(mine), "--workers", "2")
    mine.unlink()
    for worker in psutil.Process(service.process.pid).children():
        worker.kill()
    assert service.process.wait(40) == 1
