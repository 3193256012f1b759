"""The service of several hosts: how it begins, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from toolsvc.edge.metrics import page_of_all
from toolsvc.edge.service import SERVICE_NAME
from toolsvc.errors import StartError
from toolsvc.fleet.front import FrontServicer
from toolsvc.fleet.hosts import HostProcess, Wanted
from toolsvc.fleet.link import HostLink
from toolsvc.fleet.own_hosts import OwnHosts
from toolsvc.fleet.placing import Placer
from toolsvc.fleet.resources import NOTHING, Resources
from toolsvc.fleet.sessions import SessionTable
from toolsvc.fleet.shared import SharedHosts
from toolsvc.fleet.starting import Starter
from toolsvc.host.task_blobs import BLOB_BYTES, TaskBlobs
from toolsvc.sandbox.config import MIB
from toolsvc.service_config import ServiceConfig
from toolsvc.serving import (
    announce,
    bound,
    make_server,
    metrics_face,
    raise_open_files,
    settle,
)
from toolwright.rpc.auth import TokenOnBehalf
from toolwright.rpc.errors import ListenError
from toolwright.rpc.server import Server
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

log = structlog.get_logger("toolsvc.fleet")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKind:
    """Kind of the hosts of a service, and the number of shared hosts."""

    hosts: int
    named: str
    """For example "2 workers"."""
    make: Callable[[Wanted], HostProcess]
    token: str
    """Bearer token between front and hosts."""
    link: str = ""
    """Address at which hosts reach the front; "" = they never call it."""
    room: Resources = NOTHING
    """Resources of each shared host."""
    needs: Mapping[str, Resources] | None = None
    """Resources of a session, by tool; None = a session needs only a place, and a host lists the
    tools."""
    tools: tuple[str, ...] = ()
    """Names of the tools whose sessions share hosts; empty = all."""
    listed: pb.ListToolsResponse | None = None
    """Answer to ListTools; None = a host's answer."""
    start_seconds: float | None = None
    """Longest wait for all hosts at the service's start, in seconds; None = each host has its own
    limit."""
    why_late: str = ""
    """Reason that the error message gives if that time was too short."""


def no_verltool(config: ServiceConfig) -> None:
    if config.verltool_http:
        raise StartError(
            "--verltool-http is for one process: leave --workers and --backend out, or start "
            "another service"
        )


def of_one_host(config: ServiceConfig, hosts: int) -> ServiceConfig:
    """The configuration of one of `hosts` hosts. Each may have to take all sessions, once the
    others have died."""
    hosts = max(1, hosts)
    return config.model_copy(
        update={
            "health": "",
            "blobs_mib": max(BLOB_BYTES // MIB, config.blobs_mib // hosts),
            "ready": math.ceil(config.ready / hosts),
            "shards": math.ceil(config.shards / hosts),
        }
    )


async def serve_fleet(config: ServiceConfig, kind: HostKind, stop: asyncio.Event) -> None:
    """Serves until `stop`. Raises StartError or ListenError before that; StartError also where,
    later, a host cannot start and no other lives."""
    raise_open_files()
    server = make_server(config, config.listen)
    servers = [server]
    if kind.link:
        servers.append(Server(kind.link, tokens=TokenOnBehalf(kind.token)))
    sessions: SessionTable[HostLink] = SessionTable(config.max_sessions, kind.room)
    starter = Starter(kind.make, kind.token)
    shared = SharedHosts(sessions, starter, kind.room, kind.tools, server.set_serving)
    try:
        with _sentence_alone():
            async with (
                metrics_face(config, page_of_all(shared.metrics)),
                asyncio.TaskGroup() as group,
            ):
                own = OwnHosts(sessions, starter, group)
                blobs = TaskBlobs(config.blobs_mib * MIB)
                placer = Placer(kind.needs, kind.room, sessions, blobs, own)
                front = FrontServicer(kind.listed, sessions, blobs, placer, starter)
                for one in servers:
                    await _listen(one, front)
                where = bound(config.listen, server.port)
                running = [
                    group.create_task(_run(kind, shared, where)),
                    group.create_task(_expire(blobs)),
                ]
                await stop.wait()
                placer.draining = True
                await server.set_serving(False)
                own.stop()
                for task in running:
                    task.cancel()
    finally:
        try:
            await starter.end()
        finally:
            await asyncio.gather(*(one.stop(1.0) for one in servers))
        log.info("stopped", sessions=len(sessions))


@contextlib.contextmanager
def _sentence_alone() -> Iterator[None]:
    """Unwraps exception groups: the first StartError or ListenError in the block is raised
    alone."""
    try:
        yield
    except BaseExceptionGroup as failures:
        told: BaseException | None = failures.subgroup((StartError, ListenError))
        while isinstance(told, BaseExceptionGroup):
            told = told.exceptions[0]
        if told is None:
            raise
        raise told from None


async def _listen(server: Server, front: FrontServicer) -> None:
    """Listens before there is a host, so that a port that is in use is reported at once."""

    def register(grpc_server: Any) -> None:
        tool_pb2_grpc.add_ToolServiceServicer_to_server(front, grpc_server)

    server.add(SERVICE_NAME, register)
    await server.start(serving=False)


async def _run(kind: HostKind, shared: SharedHosts, where: str) -> None:
    try:
        async with asyncio.timeout(kind.start_seconds):
            hosts = await shared.start(kind.hosts)
    except TimeoutError:
        raise StartError(
            f"{len(shared.hosts)} of {kind.hosts} hosts of {kind.room} were up after "
            f"{kind.start_seconds:g} s: {kind.why_late}"
        ) from None
    settle()
    names = hosts[0].tools if kind.listed is None else [tool.name for tool in kind.listed.tools]
    isolation = ",".join(sorted({host.isolation for host in hosts} - {""}))
    announce(tuple(names), where, isolation, f", {kind.named}")
    await shared.keep()


async def _expire(blobs: TaskBlobs) -> None:
    while True:
        await asyncio.sleep(1.0)
        blobs.expire()
