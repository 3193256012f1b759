"""The service on a Ray cluster: how it begins, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

from toolsvc.cluster.fleet import Fleet
from toolsvc.cluster.front import FrontServicer, cannot_fork
from toolsvc.cluster.link import HostLink
from toolsvc.cluster.own_hosts import OwnHosts
from toolsvc.cluster.placing import Placer
from toolsvc.cluster.ray_cluster import connected, nodes
from toolsvc.cluster.resources import (
    Resources,
    apart,
    check_reach,
    check_room,
    counted,
    declared,
)
from toolsvc.cluster.sessions import Sessions
from toolsvc.cluster.starting import Starter
from toolsvc.edge.metrics import page_of_all
from toolsvc.edge.service import SERVICE_NAME
from toolsvc.edge.wire import descriptor_to_proto
from toolsvc.errors import StartError, start_error_alone
from toolsvc.host.admission import PERMITS_PER_CORE
from toolsvc.host.task_blobs import BLOB_BYTES, TaskBlobs
from toolsvc.plugin.tool import Tool
from toolsvc.serving import (
    ServiceConfig,
    announce,
    bound,
    make_server,
    metrics_face,
    service_name,
    settle,
    stop_event,
    tools_of,
)
from toolwright import loop
from toolwright.rpc.server import Server
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

log = structlog.get_logger("toolsvc.cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What an operator may say about the hosts."""

    address: str
    """host:port of the cluster's head; "" = a cluster on this machine alone."""
    hosts: int
    """That sessions share."""
    host: Resources
    """Of each of them."""


def serve_on_ray(config: ServiceConfig, shape: Shape) -> None:
    """Serves until SIGTERM. StartError or ListenError before that; StartError also where, later, a
    host cannot start and no other lives."""
    if config.verltool_http:
        raise StartError(
            "--verltool-http is for one process: leave --backend out, or start another service"
        )
    # Before the event loop: Ray starts processes of its own, and takes seconds for it.
    with connected(shape.address):
        loop.run(_serve(config, shape))


async def _serve(config: ServiceConfig, shape: Shape) -> None:
    stop = stop_event(until_eof=config.until_eof)
    tools = await tools_of(config)
    needs = {tool.name: declared(tool) for tool in tools}
    shared = tuple(name for name, one in needs.items() if not apart(one, shape.host))
    number = shape.hosts if shared else 0
    have = nodes()
    check_room(number, shape.host, have)
    for tool in tools:
        check_reach(tool, have)
    server = make_server(config, config.listen)
    sessions: Sessions[HostLink] = Sessions(config.max_sessions, shape.host)
    starter = Starter(_of_one_host(config, shape))
    fleet = Fleet(sessions, starter, shape.host, shared, server.set_serving)
    try:
        with start_error_alone():
            async with (
                metrics_face(config, page_of_all(fleet.metrics)),
                asyncio.TaskGroup() as group,
            ):
                own = OwnHosts(sessions, starter, group)
                blobs = TaskBlobs(config.blob_room)
                placer = Placer(needs, shape.host, sessions, blobs, own)
                front = FrontServicer(_listed(tools, shared), sessions, blobs, placer, starter)
                await _listen(server, front)
                where = bound(config.listen, server.port)
                say = partial(_announce, tools, where, fleet)
                running = [
                    group.create_task(fleet.run(number, say)),
                    group.create_task(_expire(blobs)),
                ]
                await stop.wait()
                placer.draining = True
                await server.set_serving(False)
                own.stop()
                for task in running:
                    task.cancel()
    finally:
        await asyncio.gather(*(host.end() for host in starter.hosts))
        await server.stop(1.0)
        log.info("stopped", sessions=len(sessions))


async def _listen(server: Server, front: FrontServicer) -> None:
    """Answers from now on, though there is no host yet: a port that is taken is told at once."""

    def register(grpc_server: Any) -> None:
        tool_pb2_grpc.add_ToolServiceServicer_to_server(front, grpc_server)

    server.add(SERVICE_NAME, register)
    await server.start(serving=False)


def _announce(tools: list[Tool], where: str, fleet: Fleet) -> None:
    settle()
    names = tuple(tool.name for tool in tools if tool.callable)
    isolation = ",".join(sorted({host.isolation for host in fleet.hosts} - {""}))
    announce(names, where, isolation, f", {counted(len(fleet.hosts), 'host')} on Ray")


def _listed(tools: list[Tool], shared: Collection[str]) -> pb.ListToolsResponse:
    """`shared`: those whose sessions share hosts."""
    described = [descriptor_to_proto(tool.describe()) for tool in tools if tool.callable]
    for tool in described:
        if tool.name not in shared:
            cannot_fork(tool)
    return pb.ListToolsResponse(tools=described, service=service_name())


def _of_one_host(config: ServiceConfig, shape: Shape) -> ServiceConfig:
    """Any may have to take all sessions, once the others have died."""
    hosts = max(1, shape.hosts)
    return replace(
        config,
        blob_room=max(BLOB_BYTES, config.blob_room // hosts),
        permits=max(1, int(PERMITS_PER_CORE * shape.host.cpus)),
        sandbox=replace(
            config.sandbox,
            ready=-(-config.sandbox.ready // hosts),
            shards=-(-config.sandbox.shards // hosts),
        ),
    )


async def _expire(blobs: TaskBlobs) -> None:
    while True:
        await asyncio.sleep(1.0)
        blobs.expire()
