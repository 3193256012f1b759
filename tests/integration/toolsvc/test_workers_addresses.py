"""Where workers listen, and by which names they are reached."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.net import free_port
from tests.support.workers import NOTES, connected, one_at_each
from toolwright.rpc.errors import TransportError

from .conftest import Service

pytestmark = pytest.mark.quick


async def test_every_worker_asks_for_the_token(
    start: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLWRIGHT_TOKEN", "secret")
    service = start(NOTES, "--workers", "2")
    async with connected(service.address, token="secret") as client:
        for endpoint, session in (await one_at_each(client)).items():
            async with connected(endpoint, token="secret") as there:
                assert await there.say(session, "a") == "a"
            async with connected(endpoint) as stranger:
                with pytest.raises(TransportError, match="UNAUTHENTICATED"):
                    await stranger.say(session, "b")


async def test_a_unix_socket_has_sockets_beside_it(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    address = f"unix:{tmp_path / 'tools'}"
    start(NOTES, "--workers", "2", "--listen", address)
    async with connected(address) as client:
        at = await one_at_each(client)
        assert set(at) == {f"{address}.0", f"{address}.1"}
        for endpoint, session in at.items():
            async with connected(endpoint) as there:
                assert await there.say(session, "a") == "a"


async def test_advertised_workers_listen_where_they_are_told(start: Callable[..., Service]) -> None:
    first = free_port()
    service = start(
        NOTES, "--workers", "2", "--listen", "0.0.0.0:0", "--insecure",
        "--advertise", "localhost", "--worker-port", str(first),
    )  # fmt: skip
    port = service.address.rpartition(":")[2]
    async with connected(f"127.0.0.1:{port}") as client:
        at = await one_at_each(client)
        assert set(at) == {f"localhost:{first}", f"localhost:{first + 1}"}
        for endpoint, session in at.items():
            async with connected(endpoint) as there:
                assert await there.say(session, "a") == "a"


@pytest.mark.parametrize("option", ["--listen", "--health"])
def test_a_port_that_others_hold_is_not_shared(
    serve_fails: Callable[..., str], option: str
) -> None:
    """By whatever option, and although they would share it."""
    with socket.socket() as sharing:
        sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sharing.bind(("127.0.0.1", 0))
        sharing.listen()
        address = f"127.0.0.1:{sharing.getsockname()[1]}"
        options = ("--workers", "2", "--listen", "127.0.0.1:0", option, address)
        line = serve_fails(NOTES, *options, environment=dict(os.environ))
    assert address in line
    assert "in use" in line


@pytest.mark.parametrize(
    ("more", "says"),
    [("--insecure", "--advertise HOST"), ("--advertise=localhost", "TOOLWRIGHT_TOKEN")],
)
def test_what_is_missing_is_said(serve_fails: Callable[..., str], more: str, says: str) -> None:
    words = (NOTES, "--workers", "2", "--listen", "0.0.0.0:0", more)
    assert says in serve_fails(*words, environment={**os.environ, "TOOLWRIGHT_TOKEN": ""})
