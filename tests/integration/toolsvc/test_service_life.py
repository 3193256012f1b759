"""How a service ends, by whatever hand, and what keeps it from starting."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
import pytest

from tests.support.service import Client, refused, seconds
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError, TransportError

pytestmark = pytest.mark.quick

SMALL = ("--ready", "2", "--shards", "1")


async def begun(client: Client, session: str, code: str) -> asyncio.Task[Any]:
    """A call that is running; what it comes to."""
    call_id = "long"
    async with asyncio.timeout(20):
        while True:
            action = f"<python> {code}</python>"
            answer = await client.call(session, action, call_id, wait=seconds(0.05))
            assert answer.HasField("running"), answer
            if answer.running.run.ToNanoseconds():
                return asyncio.create_task(client.python(session, code, call_id))


def spinning(pid: int) -> int:
    """Processes below that one that want a CPU at this moment."""
    count = 0
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            count += process.status() == psutil.STATUS_RUNNING
    return count


async def test_sigterm_lets_a_call_end_and_leaves_no_process(
    start: Any, connect: Callable[[str], Client]
) -> None:
    service = start("python", *SMALL)
    client = connect(service.address)
    session = await client.open()
    below = psutil.Process(service.process.pid).children(recursive=True)
    assert below
    call = await begun(client, session, "import time; time.sleep(1.0); 'finished'")
    service.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(20):
        with pytest.raises((ServiceError, TransportError)):
            while True:  # until it has taken note
                await client.open()
    with pytest.raises((ServiceError, TransportError)):
        await client.python(session, "1")
    assert (await call).observation[0].text == "'finished'"
    assert await asyncio.to_thread(service.process.wait, 20) == 0
    assert not psutil.wait_procs(below, timeout=5)[1]


async def test_a_lost_jail_is_never_an_observation(
    start: Any, connect: Callable[[str], Client]
) -> None:
    service = start("python", *SMALL)
    client = connect(service.address)
    session = await client.open()
    call = await begun(client, session, "while True: pass")
    for process in psutil.Process(service.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name().startswith("python"):
                process.kill()
    with refused(reasons.ERROR_REASON_SESSION_LOST):
        await call
    with refused(reasons.ERROR_REASON_SESSION_LOST):
        await client.python(session, "1")
    async with asyncio.timeout(30):
        while True:
            try:
                assert await client.text(await client.open(), "6 * 7") == "42"
                break
            except ServiceError as error:
                assert error.reason == reasons.ERROR_REASON_SESSION_LOST


async def test_kill_9_leaves_no_process(
    start: Any,
    connect: Callable[[str], Client],
    until: Callable[[Callable[[], bool]], Awaitable[None]],
) -> None:
    service = start("python", *SMALL)
    client = connect(service.address)
    session = await client.open()
    code = "import os\nif os.fork() == 0:\n    os.setpgid(0, 0)\nwhile True: pass"
    call = await begun(client, session, code)
    await until(lambda: spinning(service.process.pid) >= 2)
    below = psutil.Process(service.process.pid).children(recursive=True)
    assert len(below) >= 5
    service.process.send_signal(signal.SIGKILL)
    with pytest.raises((ServiceError, TransportError)):
        await call
    assert not psutil.wait_procs(below, timeout=10)[1]


@pytest.fixture
def fails(serve_fails: Callable[..., str]) -> Callable[..., str]:
    def run(*arguments: str, **environment: str) -> str:
        return serve_fails(*arguments, environment={**os.environ, **environment})

    return run


def test_a_port_in_use_is_one_sentence(fails: Callable[..., str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = fails("python", *SMALL, "--listen", address)
    assert address in line
    assert "in use" in line


def test_an_address_off_loopback_needs_a_token(fails: Callable[..., str]) -> None:
    line = fails("finish", "--listen", "0.0.0.0:0", TOOLWRIGHT_TOKEN="")
    assert "TOOLWRIGHT_TOKEN" in line
