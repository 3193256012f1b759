"""TLS: certificates made for the test, shown by real services, checked by real clients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from engine.core.tools.calls import PendingCall
from engine.core.tools.services import ToolServices
from engine.types import Call
from tests.support.tls import Pem, make_pem
from toolwright.recipe import Tool
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import TransportError
from toolwright.rpc.tls import TlsError, read_authority, read_certificate
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc
from toolwright.types import Task

from .conftest import Service, running_service

pytestmark = pytest.mark.quick

PLUGIN = """
from toolsvc import tool

@tool
def echo(text: str) -> str:
    "Says it again."
    return text
"""


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    return make_pem(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plugin") / "echo.py"
    path.write_text(PLUGIN, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def service(pem: Pem, plugin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two workers off loopback, for clients that show a certificate: that lets them listen there
    without a token."""
    log = tmp_path_factory.mktemp("service") / "errors.log"
    with running_service(
        log, plugin, "--workers", "2", *pem.options, "--tls-client-ca", str(pem.authority),
        "--listen", "0.0.0.0:0", "--advertise", "localhost",
    ) as running:  # fmt: skip
        yield Service(running.process, running.address.replace("0.0.0.0", "localhost"))


async def list_tools(address: str, **how: Any) -> list[str]:
    async with open_channel(address, **how) as channel:
        stub: Any = tool_pb2_grpc.ToolServiceStub(channel)
        listed = await rpc(stub.ListTools, pb.ListToolsRequest(), timeout=20)
        return [tool.name for tool in listed.tools]


async def test_only_a_client_that_trusts_the_authority_is_answered(
    service: Service, pem: Pem, tmp_path: Path
) -> None:
    ours, theirs = read_authority(pem.authority), make_pem(tmp_path / "theirs")
    mine = read_certificate(pem.certificate, pem.key)
    forged = read_certificate(theirs.certificate, theirs.key)
    trusted = {"authority": ours, "identity": mine}
    assert await list_tools(service.address, **trusted) == ["echo"]
    for how in (
        {"authority": read_authority(theirs.authority), "identity": mine},
        {"authority": ours, "identity": forged},
        {"authority": ours},
        {},
    ):
        with pytest.raises(TransportError) as failure:
            await list_tools(service.address, **how)
        assert failure.value.code is grpc.StatusCode.UNAVAILABLE


async def test_the_engine_reaches_every_worker(service: Service, pem: Pem) -> None:
    """By `tls_ca` and `tls_cert` of the recipe."""
    table = Tool(
        service=service.address, tls_ca=pem.authority, tls_cert=pem.certificate, tls_key=pem.key
    )
    services = ToolServices({"echo": table}, "an owner of these tests")
    try:
        assert [tool.name for tool in (await services.open())["echo"]] == ["echo"]
        endpoints = set()
        environments = []
        while len(endpoints) < 2:
            environment = await services.open_session(f"s{len(environments)}", Task(id="t"))
            environments.append(environment)
            endpoints.add(environment.refs[0].endpoint)
            request = Call(action="<echo>hi</echo>", tool="echo", arguments={"text": "hi"})
            pending = environment.dispatch(request, call_id="c", turn=0, turns_left=0)
            assert isinstance(pending, PendingCall)
            assert (await pending.result()).outcome.observation == "hi"
        assert service.address not in endpoints
        for environment in environments:
            environment.close()
    finally:
        await services.close()


def test_files_that_will_not_do_are_named(
    pem: Pem, tmp_path: Path, serve_fails: Callable[..., str], plugin: str
) -> None:
    other = make_pem(tmp_path / "other")
    with pytest.raises(TlsError, match=r"certificate\.pem.*key\.pem.*belong together"):
        read_certificate(pem.certificate, other.key)
    with pytest.raises(TlsError, match=r"absent\.pem"):
        read_certificate(tmp_path / "absent.pem", pem.key)
    with pytest.raises(TlsError, match=r"key\.pem"):
        read_authority(pem.key)
    line = serve_fails(
        plugin, "--tls-cert", str(pem.certificate), "--tls-key", str(other.key),
        environment=dict(os.environ),
    )  # fmt: skip
    assert str(other.key) in line
