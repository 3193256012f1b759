"""What a trajectory is rolled out with: what all of a run share, and what is its own."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.images.media import Media
from engine.protocols import Protocol
from engine.sampler.pool import SamplerPool
from engine.tools.services import ToolServices
from engine.types import Codec
from toolwright.recipe import Limits
from toolwright.truncation import Keep
from toolwright.types import SamplingParams, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all trajectories of a run share."""

    codec: Codec
    protocol: Protocol
    pool: SamplerPool
    tools: ToolServices
    limits: Limits
    keep: Keep
    tokenizer_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Which trajectory to roll out, and how to sample it."""

    trajectory_id: str
    group_id: str
    index: int
    attempt: str
    task: Task
    sampling: SamplingParams
    media: tuple[Media, ...] = ()
    """What `task.media` refers to."""
    withhold_observations: bool = False
    shown: dict[str, Media] = field(default_factory=dict)
    """Gets every image that segments of the trajectory refer to, by hash."""
