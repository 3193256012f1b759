"""The service whose hosts are actors on a Ray cluster."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection
from dataclasses import dataclass

from toolsvc.edge.wire import descriptor_to_proto
from toolsvc.fleet.front import cannot_fork
from toolsvc.fleet.hosts import Wanted
from toolsvc.fleet.ray.actor import ActorAssignment
from toolsvc.fleet.ray.cluster import Actor, connected, nodes
from toolsvc.fleet.ray.nodes import check_reach, check_room
from toolsvc.fleet.resources import Resources, counted, declared, needs_own_host
from toolsvc.fleet.serving import HostKind, no_verltool, of_one_host, serve_fleet
from toolsvc.plugin.tool import Tool
from toolsvc.service_config import ServiceConfig
from toolsvc.serving import service_name, stop_event, tools_of
from toolwright.process import loop
from toolwright.tool.v1 import tool_pb2 as pb

START_SECONDS = 120.0
"""Longest wait for all hosts at the service's start, in seconds. Later hosts wait until the cluster
has room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Settings of the hosts."""

    address: str
    """host:port of the cluster's head; "" = a cluster on this machine alone."""
    hosts: int
    """Number of hosts that sessions share."""
    host: Resources
    """Resources of each host."""


def serve_on_ray(config: ServiceConfig, shape: Shape) -> None:
    """Serves until SIGTERM. Raises StartError or ListenError before that; StartError also where,
    later, a host cannot start and no other lives."""
    no_verltool(config)
    # Before the event loop starts: Ray starts processes of its own, which takes seconds.
    with connected(shape.address):
        loop.run(_serve(config, shape))


async def _serve(config: ServiceConfig, shape: Shape) -> None:
    stop = stop_event(until_eof=config.until_eof)
    tools = await tools_of(config)
    needs = {tool.name: declared(tool) for tool in tools}
    shared = tuple(name for name, one in needs.items() if not needs_own_host(one, shape.host))
    number = shape.hosts if shared else 0
    have = nodes()
    check_room(number, shape.host, have)
    for tool in tools:
        check_reach(tool, have)
    token = secrets.token_hex(32)
    of_many = of_one_host(config, shape.hosts)
    of_one = of_many.model_copy(update={"max_sessions": 1, "ready": 1, "shards": 1})

    def make(wanted: Wanted) -> Actor:
        assignment = ActorAssignment(
            config=of_one if wanted.slot is None else of_many,
            tools=wanted.tools,
            folder=os.getcwd(),
            token=token,
            version=service_name(),
        )
        return Actor(wanted, assignment)

    kind = HostKind(
        hosts=number,
        named=f"{counted(number, 'host')} on Ray",
        make=make,
        token=token,
        room=shape.host,
        needs=needs,
        tools=shared,
        listed=_listed(tools, shared),
        start_seconds=START_SECONDS,
        why_late="other work on the cluster holds what they need; see `ray status`",
    )
    await serve_fleet(config, kind, stop)


def _listed(tools: list[Tool], shared: Collection[str]) -> pb.ListToolsResponse:
    """`shared`: tools whose sessions share hosts."""
    described = [descriptor_to_proto(tool.describe()) for tool in tools if tool.callable]
    for tool in described:
        if tool.name not in shared:
            cannot_fork(tool)
    return pb.ListToolsResponse(tools=described, service=service_name())
