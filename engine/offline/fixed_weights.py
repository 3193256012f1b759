"""The policy of samplers whose weights never change: SGLang servers, or a model behind an API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.core.sampler.fleet import Fleet
from engine.core.sampler.openai.pool import OpenAIPool
from engine.core.sampler.policy_sampler import PolicySampler
from engine.core.sampler.pool import SamplerPool
from engine.core.sampler.server import Server
from engine.core.sampler.wire.client import ServerRefused
from engine.errors import StartupError
from toolwright.recipe import Sampler
from toolwright.types import WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPolicy:
    """What the samplers serve."""

    version: WeightVersion
    name: str
    """A name for users, unique to the weights: the version, and the folder of weights that no
    engine published."""
    kind: str = "sglang"
    """Kind of the servers, which decides how a conversation is sent."""


def served_policy(sampler: PolicySampler, table: Sampler) -> ServedPolicy:
    """What an open sampler serves. Raises StartupError for endpoints that do not fit together."""
    if isinstance(sampler, OpenAIPool):
        kinds = {name: str(one["kind"]) for name, one in sampler.statistics().items()}
        name = f"{sampler.version.lineage} of {table.api}"
        return ServedPolicy(version=sampler.version, name=name, kind=_one_kind(kinds, table))
    assert isinstance(sampler, SamplerPool)  # there are two kinds of samplers
    return fix_weights(sampler)


def fix_weights(fleet: Fleet) -> ServedPolicy:
    """Opens the fleet to requests at the version that its servers have now.

    A server that comes back later is used only with the same version. Raises StartupError if two
    servers have different versions.
    """
    there = [server for server in fleet.servers if server.info is not None]
    served = {server.name: server.info.weight_version for server in there if server.info}
    if len(set(served.values())) > 1:
        raise StartupError(
            "the samplers serve different weights, "
            + ", ".join(f"{text or 'unnamed'} at {name}" for name, text in served.items())
            + ": start them with the same weights, or leave some out of sampler.endpoints"
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
    return ServedPolicy(version=version, name=name)


def _one_kind(kinds: Mapping[str, str], table: Sampler) -> str:
    """Kinds of the servers, as one text. kinds: by endpoint.

    Raises StartupError if endpoints of different kinds would be sent conversations differently.
    """
    if len(set(kinds.values())) > 1 and table.api == "openai-chat" and table.observations == "auto":
        raise StartupError(
            "sampler.endpoints are servers of different kinds, "
            f"{', '.join(f'{kind} at {name}' for name, kind in kinds.items())}, which would get "
            'observations in different roles: set sampler.observations to "assistant" or "user"'
        )
    return ", ".join(sorted(set(kinds.values())))


def version_of(spelling: str) -> WeightVersion:
    """The version that a server names; any other name is a lineage of its own at step 0."""
    try:
        return WeightVersion.parse(spelling)
    except ValueError:
        return WeightVersion(lineage=spelling or "unnamed", step=0)
