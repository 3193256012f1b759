"""Enumerations of the contract, weight versions and sampling parameters.

The numbers of an enumeration are those of its twin in `toolwright.common.v1`. A number is never
reused for another member.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Author(IntEnum):
    """Author of a segment's tokens."""

    PROMPT = 1
    MODEL = 2
    TOOL = 3
    MEMORY = 4
    TEMPLATE = 5
    SYSTEM = 6


class Purpose(IntEnum):
    """Purpose of a trajectory; evaluation never reaches the learner."""

    TRAIN = 1
    EVAL = 2


class Status(IntEnum):
    """Outcome of a trajectory."""

    COMPLETED = 1
    TRUNCATED = 2
    ERRORED = 3
    TIMED_OUT = 4


class FinishKind(IntEnum):
    """Why the tokens of a model segment end where they do."""

    STOP = 1
    LENGTH = 2
    ABORT = 3
    CONTINUED = 4


class StopReason(IntEnum):
    """Why a trajectory ended; the members are those of the contract, see reasons.proto."""

    ANSWERED = 1
    TOOL_SIGNALED_DONE = 2
    NO_ACTION_IN_OUTPUT = 3
    EMPTY_OUTPUT = 4
    MAX_TURNS = 5
    MAX_RESPONSE_LENGTH = 6
    MAX_MODEL_LENGTH = 7
    TOOL_TIMEOUT = 8
    TRAJECTORY_TIMEOUT = 9
    TOOL_EXCEPTION = 10
    SESSION_LOST = 11
    SAMPLER_ERROR = 12
    INFRASTRUCTURE_ERROR = 13
    REWARD_ERROR = 14
    STALE = 15
    BUDGET_EXHAUSTED = 16
    CANCELLED = 17
    MAX_ACTION_LENGTH = 18
    MAX_IMAGE_BYTES = 19


class ToolErrorKind(IntEnum):
    """Why a tool that ran failed; see reasons.proto. NONE = it did not."""

    NONE = 0
    TIMEOUT = 1
    EXCEPTION = 2
    OUT_OF_MEMORY = 3
    CRASHED = 4
    INVALID_ACTION = 5
    UNKNOWN_TOOL = 6
    CANCELLED = 7
    LIMIT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightVersion:
    """`step` optimizer steps along `lineage`, those before the lineage's fork included."""

    lineage: str
    step: int

    def __str__(self) -> str:
        return f"{self.lineage}.{self.step}"

    @classmethod
    def parse(cls, text: str) -> WeightVersion:
        """Inverse of `str`. Raises ValueError for other texts."""
        lineage, dot, step = text.rpartition(".")
        if not dot or not lineage:
            raise ValueError(
                f"{text!r} is not a weight version: write LINEAGE.STEP, as 'a1b2c3.17'"
            )
        return cls(lineage=lineage, step=int(step))


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens were or shall be drawn; None = the recipe's or the server's own value."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    adapter: str | None = None
    max_new_tokens: int | None = None
