"""The state of the samplers, from the coordinator's fleet to the workers.

The coordinator alone decides which server is up and which weights it has. A worker reports a server
that broke off, and the coordinator looks.
"""

from __future__ import annotations

import msgspec

from engine.core.sampler.fleet import Fleet
from engine.core.sampler.server import Server
from engine.core.sampler.wire.client import ServerInfo
from toolwright.crew.v1 import crew_pb2 as pb


def state_of(fleet: Fleet, number: int) -> pb.Samplers:
    """The present state under a number."""
    return pb.Samplers(
        number=number,
        versions=list(fleet.known),
        samplers=[_server_state(server) for server in fleet.servers],
    )


def _server_state(server: Server) -> pb.Sampler:
    return pb.Sampler(
        name=server.name,
        up=server.up.is_set(),
        why=server.why,
        paused=server.paused,
        version="" if server.version is None else str(server.version),
        info=b"" if server.info is None else msgspec.json.encode(server.info),
    )


def info_of(state: pb.Sampler) -> ServerInfo | None:
    """The server's answer to /server_info; None if it never answered."""
    return msgspec.json.decode(state.info, type=ServerInfo) if state.info else None
