"""What answers at an address: nothing, the expected server, or another program.

A server that starts at an occupied address fails a minute later, with a library's message. So the
console checks first, and names the other program.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp

from console.machine.ready import ANSWER_S, accepts_at, serves
from toolwright.process.holder import holder_of
from toolwright.rpc.options import is_unix

Who = Literal["nobody", "right", "stranger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """why: another program's answer, or the reason of a failed connection. info: a sampler's answer
    to /model_info."""

    who: Who
    why: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)


async def sampler_at(url: str) -> Found:
    """Whether an SGLang server is at a URL, by what it says of its model."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_S * 5)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{url.rstrip('/')}/model_info") as answer,
        ):
            if answer.status != 200:
                return _stranger(f"answers {answer.status} to /model_info")
            info = await answer.json(content_type=None)
            if isinstance(info, dict) and "model_path" in info:
                return Found(who="right", info=info)
            return _stranger("says no model_path in /model_info")
    except aiohttp.ClientConnectorError as error:
        return Found(who="nobody", why=str(error))
    except (aiohttp.ClientError, ValueError, TimeoutError, OSError) as error:
        return _stranger(f"does not speak as SGLang does ({error or type(error).__name__})")


async def service_at(ready: str) -> Found:
    """What answers at a `ready` of the recipe: "grpc:HOST:PORT" or a URL."""
    is_grpc = ready.startswith("grpc:")
    at = ready.removeprefix("grpc:") if is_grpc else ready.partition("//")[2].partition("/")[0]
    if not await accepts_at(at):
        return Found(who="nobody")
    if await serves(ready):
        return Found(who="right")
    asked = "grpc.health.v1 does not say SERVING" if is_grpc else f"{ready} does not answer 200"
    return _stranger(asked)


def is_here(address: str) -> bool:
    """Whether HOST:PORT is an address of this machine, so that a server can be started there."""
    if is_unix(address):
        return True
    host = address.rpartition(":")[0].strip("[]")
    with suppress(OSError):
        family, kind, _, _, where = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(where)
            return True
    return False


def holder(address: str) -> str:
    """The listener at a port of this machine, as far as this user sees it: "process 7 (python)"."""
    port = 0 if is_unix(address) else int(address.rpartition(":")[2])
    return holder_of(port) or "a process that this user may not see"


def _stranger(why: str) -> Found:
    return Found(who="stranger", why=why)
