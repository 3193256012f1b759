"""The service whose hosts are actors on a Ray cluster."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection
from dataclasses import dataclass

from toolsvc.edge.wire import descriptor_to_proto
from toolsvc.fleet.front import cannot_fork
from toolsvc.fleet.hosts import Wanted
from toolsvc.fleet.ray.actor import Assignment
from toolsvc.fleet.ray.cluster import Actor, connected, nodes
from toolsvc.fleet.ray.nodes import check_reach, check_room
from toolsvc.fleet.resources import Resources, apart, counted, declared
from toolsvc.fleet.serving import Kind, no_verltool, of_one_host, serve_fleet
from toolsvc.plugin.tool import Tool
from toolsvc.service_config import ServiceConfig
from toolsvc.serving import service_name, stop_event, tools_of
from toolwright.process import loop
from toolwright.tool.v1 import tool_pb2 as pb

START_SECONDS = 120.0
"""For all hosts, at the service's start. Later ones wait for as long as the cluster has no room."""


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
    no_verltool(config)
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
    token = secrets.token_hex(32)
    of_many = of_one_host(config, shape.hosts, shape.host.cpus)
    alone = {"max_sessions": 1, "permits": None, "ready": 1, "shards": 1}
    of_one = of_many.model_copy(update=alone)

    def make(wanted: Wanted) -> Actor:
        assignment = Assignment(
            config=of_one if wanted.slot is None else of_many,
            tools=wanted.tools,
            folder=os.getcwd(),
            token=token,
            version=service_name(),
        )
        return Actor(wanted, assignment)

    kind = Kind(
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
    """`shared`: those whose sessions share hosts."""
    described = [descriptor_to_proto(tool.describe()) for tool in tools if tool.callable]
    for tool in described:
        if tool.name not in shared:
            cannot_fork(tool)
    return pb.ListToolsResponse(tools=described, service=service_name())
