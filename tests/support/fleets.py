"""A front and its hosts in one process: real servers and real connections; how hosts live and die
is played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc.aio

from tests.support.tools import PYTHON, ToolDouble
from toolsvc.fleet.front import FrontServicer
from toolsvc.fleet.hosts import HostProcess, Ready
from toolsvc.fleet.link import HostLink
from toolsvc.fleet.own_hosts import OwnHosts
from toolsvc.fleet.placing import Placer
from toolsvc.fleet.resources import NOTHING, Resources
from toolsvc.fleet.sessions import SessionTable
from toolsvc.fleet.starting import Starter
from toolsvc.host.task_blobs import BLOB_BYTES, TaskBlobs
from toolwright.rpc.channel import open_channel
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc


class Word:
    """What is heard of a host: one thing after the other, then nothing any more."""

    def __init__(self, said: Sequence[frozenset[str] | Exception]) -> None:
        self.said = list(said)
        self.killed = False

    async def beat(self) -> frozenset[str]:
        if not self.said:
            await asyncio.Event().wait()
        one = self.said.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    async def kill(self) -> None:
        self.killed = True


def link_to(double: ToolDouble, word: Any, endpoint: str = "") -> HostLink:
    """To be closed."""
    ready = Ready(link=double.address, endpoint=endpoint, tools=("python",), isolation="")
    return HostLink(0, cast("HostProcess", word), ready, "")


class Started:
    """The hosts of a `Starter`, which are there already and are all."""

    def __init__(self, links: Sequence[HostLink]) -> None:
        self._links = links

    @property
    def hosts(self) -> list[HostLink]:
        return [link for link in self._links if not link.lost]


class Front:
    """One that is served, its hosts, and a client of it."""

    def __init__(self, links: Sequence[HostLink]) -> None:
        self.links = links
        self.sessions: SessionTable[HostLink] = SessionTable(100, NOTHING)
        for link in links:
            self.sessions.join(link)
        self.stub: Any = None
        """Of ToolService."""


@asynccontextmanager
async def fronting(*doubles: ToolDouble, words: Sequence[Any] = ()) -> AsyncIterator[Front]:
    """Before hosts that are served and that sessions share; `words`: what is heard of each."""
    said = words or [Word(()) for _ in doubles]
    front = Front([link_to(double, word) for double, word in zip(doubles, said, strict=True)])
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    listed = pb.ListToolsResponse(tools=[PYTHON])
    async with answering(front, {"python": NOTHING}, listed) as servicer:
        tool_pb2_grpc.add_ToolServiceServicer_to_server(servicer, server)
        channel = open_channel(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        front.stub = tool_pb2_grpc.ToolServiceStub(channel)
        await server.start()
        try:
            yield front
        finally:
            await channel.close()
            await server.stop(0)


@asynccontextmanager
async def answering(
    front: Front,
    needs: Mapping[str, Resources] | None = None,
    listed: pb.ListToolsResponse | None = None,
) -> AsyncIterator[FrontServicer]:
    """What a front answers with, which is to be served. Its hosts are given up with the block."""
    starter = cast("Starter", Started(front.links))
    async with asyncio.TaskGroup() as group:
        blobs = TaskBlobs(BLOB_BYTES)
        own = OwnHosts(front.sessions, starter, group)
        placer = Placer(needs, NOTHING, front.sessions, blobs, own)
        try:
            yield FrontServicer(listed, front.sessions, blobs, placer, starter)
        finally:
            await asyncio.gather(*(link.close() for link in front.links))
