"""Adapters (LoRA) on one server: a run whose versions are adapters of one frozen policy.

The server has the frozen policy and a few adapters, each under its version's name. A request names
the newest one. A request in flight goes on with its own, so a publish pauses nothing. The server
keeps the prefix cache of each adapter separate.

Invariants
- A request names an adapter only while the server has it.
- An adapter is unloaded at a publish after the last request in flight that names it.
- A server that is brought up has the frozen policy and the newest adapter alone.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import structlog

from engine.core.sampler.fleet import Fleet
from engine.core.sampler.server import Server
from engine.core.sampler.wire.client import ServerRefused, ServerUnreachable
from engine.core.sampler.wire.events import WireError
from engine.errors import StartupError
from toolwright.types import WeightVersion

log = structlog.get_logger("weights")


def refuse_without_adapters(fleet: Fleet) -> None:
    """Raises StartupError if a server was started such that it takes no adapters."""
    for server in fleet.servers:
        if server.info is not None and not server.info.takes_adapters:
            raise StartupError(
                f"run.publish_adapters = true, and sampler {server.name} takes no adapters: start "
                "it with --enable-lora --max-lora-rank R --lora-target-modules all, R at least "
                "learner.lora.rank, and without --dp-size"
            )


async def start_over(server: Server, name: str, *, base: Path, folder: Path) -> None:
    """Gives the frozen policy and one adapter to a server that samples nothing.

    name: the version. folder: the adapter's folder, or `base` for the frozen policy alone.
    """
    server.adapter = ""
    server.adapters.clear()
    for found in dict.fromkeys((*await server.client.adapters(), name)):
        if _is_version(found):
            with suppress(ServerRefused):  # it is not loaded
                await server.client.unload_adapter(found)
    await server.client.update_from_disk(str(base), name, flush_cache=True)
    if folder != base:
        await _load(server, name, folder)


async def add(server: Server, name: str, folder: Path) -> None:
    """Gives a server that samples the adapter of a newer version."""
    await _load(server, name, folder)
    await server.client.name_weights(name)


async def unload_idle(server: Server) -> None:
    """Unloads adapters that are not the newest and that no request in flight names. An adapter that
    cannot be unloaded stays until the next publish."""
    named = {flight.adapter for flight in server.flights} | {server.adapter}
    for name in [one for one in server.adapters if one not in named]:
        try:
            await server.client.unload_adapter(name)
        except (ServerUnreachable, ServerRefused, WireError) as error:
            log.info("adapter_not_unloaded", server=server.name, adapter=name, error=str(error))
        else:
            del server.adapters[name]


async def _load(server: Server, name: str, folder: Path) -> None:
    await server.client.load_adapter(name, str(folder))
    server.adapters[name] = None


def _is_version(name: str) -> bool:
    try:
        WeightVersion.parse(name)
    except ValueError:
        return False
    return True
