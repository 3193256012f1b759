"""What a rollout needs: its `Surroundings`, which all of a run share, and an `Assignment` of its
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
from engine.types import ToolSpec
from toolwright.types import SamplingParams, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all trajectories of a run share: the rules, and whom they speak to.

    failures: attempts that infrastructure ended, by stop reason, also where a later one succeeded.
    """

    rules: Rules
    pool: PolicySampler
    tools: ToolServices
    tokenizer_hash: str
    failures: Counter[str] = field(default_factory=Counter)


class Prompts:
    """Prompts of one task, by the tools that they show, so that a group renders each once."""

    def __init__(self) -> None:
        self._known: list[tuple[tuple[ToolSpec, ...], Sequence[int]]] = []

    def of(self, tools: tuple[ToolSpec, ...]) -> Sequence[int] | None:
        return next((prompt for known, prompt in self._known if known == tools), None)

    def keep(self, tools: tuple[ToolSpec, ...], prompt: Sequence[int]) -> None:
        self._known.append((tools, prompt))


async def stored_nowhere(_sha256: str) -> bytes | None:
    """For trajectories that no earlier life can have left."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Which trajectory to roll out, and how to sample it.

    media: what `task.media` refers to. stored: bytes of an image that an earlier life showed.
    branches: of the group, where trajectories may part. iteration: the one that the group began in.
    """

    trajectory_id: str
    group_id: str
    index: int
    task: Task
    sampling: SamplingParams
    media: tuple[Media, ...] = ()
    withhold_observations: bool = False
    stored: Callable[[str], Awaitable[bytes | None]] = stored_nowhere
    prompts: Prompts = field(default_factory=Prompts)
    branches: BranchBudget | None = None
    iteration: str = ""
