"""What a host is to its front, whatever it runs in.

A host is an ordinary `Host` behind an ordinary gRPC server, in a process on this machine (`local`)
or in an actor on a Ray cluster (`ray`). How it begins, how it ends and how one hears of that is all
that differs, and `HostProcess` says it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from toolsvc.fleet.resources import Resources

HOST_NAME = "toolsvc-host"
"""Name in the certificate of every host. The front knows each host by its certificate."""
BEAT_SECONDS = 2.0
"""Between two looks at which sessions have ended by themselves."""


class HostGone(Exception):
    """It has died, and stays dead. The message says what died."""


class HostSilent(Exception):
    """It is not heard; it may live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """It listens and answers."""

    link: str
    """Where its front reaches it."""
    endpoint: str = ""
    """Where clients reach it; "" = through the front alone."""
    tools: tuple[str, ...]
    """Names of those that it serves."""
    isolation: str
    certificate: bytes = b""
    """That it shows at `link`, PEM; empty where it shows none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A host that is to be started."""

    slot: int | None
    """Number among the hosts that sessions share; None = for one session alone."""
    needs: Resources
    tools: tuple[str, ...]
    """Names of those that it is to serve; none = all."""
    closed: Callable[[str], None]
    """Called for each session that its client closes without the front."""


class HostProcess(Protocol):
    """One host from its start to its end: `start` once, `kill` in any case."""

    async def start(self) -> Ready:
        """Returns when it can be used. StartError with the sentence that it gave, or that it
        died."""

    async def beat(self) -> frozenset[str]:
        """The sessions that it holds, some seconds after it was asked. HostGone as soon as it has
        died; HostSilent."""

    async def page(self) -> str:
        """Its metrics in Prometheus' text format. HostGone; HostSilent."""

    async def end(self) -> None:
        """Gives calls their grace and ends every session. HostGone; HostSilent."""

    async def kill(self) -> None:
        """Ends it now, wherever it is, or before it is anywhere."""
