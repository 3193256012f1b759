"""The interface between a host and its front, for every kind of host.

A host is an ordinary `Host` with an ordinary gRPC server, in a process on this machine (`local`) or
in an actor on a Ray cluster (`ray`). The kinds differ only in their start, their end and the news
of it: `HostProcess` is that interface.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from toolsvc.fleet.resources import Resources

HOST_NAME = "toolsvc-host"
"""Name in the certificate of every host. The front knows each host by its certificate."""
BEAT_SECONDS = 2.0
"""Interval between two looks for sessions that ended by themselves, in seconds."""


class HostGone(Exception):
    """The host has died for good. The message says what died."""


class HostSilent(Exception):
    """The host does not answer; it may live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A host that listens and answers."""

    link: str
    """Address for its front."""
    endpoint: str = ""
    """Address for clients; "" = only through the front."""
    tools: tuple[str, ...]
    """Names of those that it serves."""
    isolation: str
    certificate: bytes = b""
    """Certificate at `link`, in PEM; empty = no TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A host to start."""

    slot: int | None
    """Number among the shared hosts; None = a host for one session."""
    needs: Resources
    tools: tuple[str, ...]
    """Names of the tools to serve; empty = all."""
    closed: Callable[[str], None]
    """Called for each session that its client closes without the front."""


class HostProcess(Protocol):
    """One host from its start to its end: `start` once, `kill` in any case."""

    async def start(self) -> Ready:
        """Returns when the host can be used. Raises StartError with the host's own sentence, or if
        it died."""

    async def beat(self) -> frozenset[str]:
        """Ids of its sessions, some seconds after the request. Raises HostGone as soon as the host
        has died, HostSilent if it does not answer."""

    async def page(self) -> str:
        """Its metrics in Prometheus' text format. Raises HostGone or HostSilent."""

    async def end(self) -> None:
        """Lets calls finish within their grace time and ends every session. Raises HostGone or
        HostSilent."""

    async def kill(self) -> None:
        """Ends the host now, also if it has not started yet."""
