"""GPU memory of a sampler that shares its GPU with the learner: released for a step, then resumed.

SGLang does not report what it has released, and it dies if it resumes memory that it has. So the
state is the name of the server's weights, as during a publish over a group: a server that restarts
loses both. The name changes before and after each call. If a client dies in between, the name says
that nothing is known, and the server must be restarted.

A paused server releases its memory; requests that wait stay in its queue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from engine.core.sampler.fleet import Fleet
from engine.core.sampler.wire.client import SamplerClient, ServerRefused
from engine.errors import StartupError

WEIGHTS = "weights"
CACHE = ("kv_cache", "cuda_graph")
"""SGLang's tags of the memory that new weights do not need while they load."""
RELEASED = "released "
"""Begins the name of a server with released memory; its tags follow."""
CHANGING = "changes its memory"
"""Name of a server during a call that releases or resumes memory."""


def released_of(name: str) -> tuple[str, ...]:
    """Tags of the released memory of a server whose weights have this name; empty if it has all
    of its memory. Raises ServerRefused if nothing is known."""
    if name == CHANGING:
        raise ServerRefused(
            "its memory was being released or resumed when the engine ended, and SGLang does not "
            "report which it was: start this sampler anew"
        )
    return tuple(name.removeprefix(RELEASED).split()) if name.startswith(RELEASED) else ()


def refuse_kept_memory(fleet: Fleet) -> None:
    """Raises StartupError if a server cannot release its memory."""
    for server in fleet.servers:
        if server.info is not None and server.info.keeps_memory:
            raise StartupError(
                f"run.share_gpu = true, and sampler {server.name} does not release its memory: "
                "start it with --enable-memory-saver"
            )


async def release(client: SamplerClient) -> None:
    """Aborts requests, pauses the server and releases its memory, unless it was released before."""
    if released_of(await client.weight_version()):
        return
    await client.abort_all()
    await client.pause("retract")  # no other mode empties the cache
    await client.name_weights(CHANGING)
    await client.release_memory((WEIGHTS, *CACHE))
    await client.name_weights(_name(WEIGHTS, *CACHE))


async def resume(client: SamplerClient, load: Callable[[str], Awaitable[None]]) -> bool:
    """Resumes what is released, and has weights loaded before the cache needs room.

    load: loads the weights under a name. False if there was nothing to resume. Else the server is
    still paused, and its weights need their own name.
    """
    tags = released_of(await client.weight_version())
    if not tags:
        return False
    if WEIGHTS in tags:
        await client.name_weights(CHANGING)
        await client.resume_memory((WEIGHTS,))
        await client.name_weights(_name(*CACHE))
    await load(_name(*CACHE))
    await client.name_weights(CHANGING)
    await client.resume_memory(CACHE)
    return True


def _name(*tags: str) -> str:
    return RELEASED + " ".join(tags)
