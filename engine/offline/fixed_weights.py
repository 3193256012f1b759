"""The weights of samplers that nobody publishes to: one version, and the same on all of them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.sampler.fleet import Fleet
from engine.core.sampler.server import Server
from engine.core.sampler.wire.client import ServerRefused
from engine.errors import StartupError
from toolwright.types import WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What the samplers serve. name: for people and for telling it from others; where no engine
    has published the weights, their version says little, so their folder is named as well. kind:
    whose servers they are, which decides how a conversation is sent."""

    version: WeightVersion
    name: str
    kind: str = "sglang"


def fix(fleet: Fleet) -> Served:
    """Lets requests to the servers as they are, and to those that come back with the same version.

    StartupError when two of them serve different versions.
    """
    there = [server for server in fleet.servers if server.info is not None]
    served = {server.name: server.info.weight_version for server in there if server.info}
    if len(set(served.values())) > 1:
        raise StartupError(
            "the samplers serve different weights, "
            + ", ".join(f"{text or 'unnamed'} at {name}" for name, text in served.items())
            + ": start them with the same, or leave some out of sampler.endpoints"
        )
    (spelling,) = set(served.values())
    version = version_of(spelling)

    async def bring_up(server: Server) -> None:
        found = await server.client.weight_version()
        if found != spelling:
            raise ServerRefused(f"{server.name} came back with weights {found!r}, not {spelling!r}")
        fleet.mark_up(server)

    fleet.known[spelling] = version
    fleet.bring_up = bring_up
    for server in there:
        fleet.mark_up(server)
    name = str(version)
    if name != spelling:
        paths = sorted({server.info.model_path for server in there if server.info})
        name = f"{spelling or 'unnamed'} of {', '.join(paths)}"
    return Served(version=version, name=name)


def version_of(spelling: str) -> WeightVersion:
    """The version that a server names; what no engine has published is step 0 of its own name."""
    try:
        return WeightVersion.parse(spelling)
    except ValueError:
        return WeightVersion(lineage=spelling or "unnamed", step=0)
