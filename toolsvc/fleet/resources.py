"""The resources of hosts and sessions, in Ray's units; pure.

Ray only counts resources: each tool must hold its own sessions to their limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from toolsvc.errors import StartError
from toolsvc.plugin.tool import Tool

GIB = 1 << 30
MOST_SHARED_BYTES = GIB
"""Most memory of a session that shares its host with others, in bytes."""
_SLACK = 1e-6
"""Tolerance for inexact sums of fractions; smaller than Ray's own unit, a ten-thousandth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    cpus: float = 0.0
    gpus: float = 0.0
    memory_bytes: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            cpus=self.cpus + other.cpus,
            gpus=self.gpus + other.gpus,
            memory_bytes=self.memory_bytes + other.memory_bytes,
        )

    def __str__(self) -> str:
        words = (
            counted(self.cpus, "CPU") if self.cpus else "",
            counted(self.gpus, "GPU") if self.gpus else "",
            f"{self.memory_bytes / GIB:.3g} GiB" if self.memory_bytes else "",
        )
        return ", ".join(filter(None, words)) or "nothing"

    def fits(self, room: Resources) -> bool:
        return all(
            want <= have + _SLACK for want, have in zip(astuple(self), astuple(room), strict=True)
        )

    def times_in(self, room: Resources) -> float:
        """How often it fits into `room`; infinity if it needs nothing."""
        pairs = zip(astuple(self), astuple(room), strict=True)
        return min(((have + _SLACK) // want for want, have in pairs if want), default=float("inf"))


def counted(number: float, what: str) -> str:
    """For example "2 hosts"."""
    return f"{number:g} {what}{'s' * (number != 1)}"


NOTHING = Resources()


def declared(tool: Tool) -> Resources:
    """What a session of the tool takes. Raises StartError for impossible numbers."""
    needs = Resources(cpus=tool.cpus, gpus=tool.gpus, memory_bytes=tool.memory_bytes)
    if min(astuple(needs)) < 0:
        raise StartError(f"tool {tool.name!r} asks for less than nothing: {needs}")
    if needs.gpus > 1 and needs.gpus % 1:
        raise StartError(
            f"tool {tool.name!r} asks for {needs.gpus:g} GPUs: say a part of one, or whole ones"
        )
    return needs


def together(needs: Iterable[Resources]) -> Resources:
    return sum(needs, NOTHING)


def needs_own_host(needs: Resources, host: Resources) -> bool:
    """Whether a session needs an actor of its own: it wants a GPU, more than `MOST_SHARED_BYTES`,
    or more than a whole shared `host` has."""
    return bool(needs.gpus) or needs.memory_bytes > MOST_SHARED_BYTES or not needs.fits(host)
