"""What all kinds of agents have in common: what an agent gets, and what it leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from agents.outcomes import Ending, Result
from agents.process.keepers import Keepers
from toolwright.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A trajectory that an agent is to write."""

    number: int
    """Number among the trajectories of this host."""
    attempt: str
    """Name of the attempt, for logs."""
    task: Task
    key: str
    """Key of its model calls."""
    reward_key: str = ""
    """Key for Report; "" unless the recipe lets the agent report its reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What an agent left at its end. output: the beginning and the end of what it wrote."""

    ending: Ending
    result: Result = field(default_factory=Result)
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The host's place on this machine. base: of the agents' folders. ingress: URL of the ingress,
    without a path."""

    base: Path
    ingress: str
    keepers: Keepers


class Kind(ABC):
    """Runs the agents of one task."""

    words = ""
    """Where its agents run, for people."""

    async def prepare(self) -> None:
        """Called once, before the first agent. Raises StartError if no agent can run here."""
        return

    @abstractmethod
    async def play(self, assigned: Assigned) -> Played:
        """The whole life of an agent. Nothing of the agent is left when it returns. Cancellation
        ends the agent."""

    async def close(self) -> None:
        """Called once, after the last agent and also if `prepare` failed."""
        return
