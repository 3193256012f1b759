"""Inputs of a rollout: a `RolloutContext`, shared by the whole run, and an `Assignment` of its
own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from engine.core.branching.budget import BranchBudget
from engine.core.images.media import Media
from engine.core.rollout.decide import Rules
from engine.core.sampler.policy_sampler import PolicySampler
from engine.core.tools.services import ToolServices
from engine.core.trajectory.log import AttemptLog
from engine.types import ToolSpec
from toolwright.types import SamplingParams, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutContext:
    """What all trajectories of a run share: the rules, the sampler and the tool services."""

    rules: Rules
    pool: PolicySampler
    tools: ToolServices
    tokenizer_hash: str
    failures: Counter[str] = field(default_factory=Counter)
    """Attempts that infrastructure ended, by stop reason, also if a later attempt succeeded."""
    outside: OutsideRun | None = None
    """Runs attempts of outside agents; None for our own turn loop."""


OutsideRun = Callable[[RolloutContext, "Assignment", AttemptLog], Awaitable[None]]
"""(shared, own, log): returns when the log has ended. Raises AttemptFailed."""


class PromptCache:
    """Prompts of one task by the tools that they show, so that a group renders each prompt once."""

    def __init__(self) -> None:
        self._known: list[tuple[tuple[ToolSpec, ...], Sequence[int]]] = []

    def of(self, tools: tuple[ToolSpec, ...]) -> Sequence[int] | None:
        return next((prompt for known, prompt in self._known if known == tools), None)

    def keep(self, tools: tuple[ToolSpec, ...], prompt: Sequence[int]) -> None:
        self._known.append((tools, prompt))


async def nothing_stored(_sha256: str) -> bytes | None:
    """Image reader for trajectories without an earlier life: no image is stored."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Which trajectory to roll out, and how to sample it."""

    trajectory_id: str
    group_id: str
    index: int
    task: Task
    sampling: SamplingParams
    media: tuple[Media, ...] = ()
    """Media that `task.media` refers to."""
    withhold_observations: bool = False
    stored: Callable[[str], Awaitable[bytes | None]] = nothing_stored
    """Reads the bytes of an image that an earlier life showed, by its hash."""
    prompts: PromptCache = field(default_factory=PromptCache)
    branches: BranchBudget | None = None
    """Branches of the group, if its trajectories may branch."""
    iteration: str = ""
    """Iteration in which the group began, RUN.STEP."""
    fence: int = 0
    """Grows each time a trajectory goes to another process or life. Tool services refuse requests
    below the highest that came for a session."""
