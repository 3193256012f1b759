"""Tools whose session is one episode of an environment: what they share.

A task names its episode in its metadata: `seed`, a whole number (0 if it has none), `reset`,
options of the environment's reset, and `opening`, a digest of the first observation. The first
observation stands in the task's question; `toolsvc tasks` writes both. An episode with another
digest is refused: the policy would play another episode than the one that it reads about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolsvc.errors import Reason, Refused
from toolsvc.types import Result

LOOK = ""
"""Action that repeats the last observation and plays nothing. Of a call in JSON: no arguments."""
MOST_SEED = 2**31 - 1
"""Largest seed: all libraries take it."""
_DIGEST_BYTES = 6
"""Length of a digest: a metric holds it exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeTask:
    """An episode as the task's metadata name it."""

    seed: int = 0
    reset: Mapping[str, Any] | None = None
    """Options of the environment's reset."""
    opening: int | None = None
    """Digest of the first observation; None = not known."""

    def check(self, first: str, name: str) -> None:
        """Raises Refused if the episode does not begin with what the task was made of."""
        if self.opening is not None and digest(first) != self.opening:
            raise Refused(
                Reason.INVALID_REQUEST,
                f"the episode of {name} with seed {self.seed} does not begin as its task says",
                subject=name,
                fix="write the tasks again with the packages and options of this service "
                "(`toolsvc tasks`); if that does not help, the environment draws at random",
            )


def look(text: str, *, over: bool) -> Result:
    """Result of LOOK. text: last observation."""
    return Result.of(text, done=over, metrics={"opening": float(digest(text))})


def digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest())


def task_of(metadata: Mapping[str, Any]) -> EpisodeTask:
    """Episode that the metadata name. Raises Refused for values that make no sense."""
    seed = _whole(metadata, "seed", MOST_SEED)
    reset = metadata.get("reset")
    if reset is not None and not isinstance(reset, Mapping):
        raise _unfit("reset", reset, "write an object")
    opening = _whole(metadata, "opening", 2 ** (8 * _DIGEST_BYTES) - 1)
    return EpisodeTask(seed=seed or 0, reset=reset, opening=opening)


def _whole(metadata: Mapping[str, Any], key: str, most: int) -> int | None:
    value = metadata.get(key)
    if isinstance(value, float) and value.is_integer():  # a number that passed protobuf's Struct
        value = int(value)
    if value is not None and (type(value) is not int or not 0 <= value <= most):
        raise _unfit(key, value, f"write a whole number from 0 to {most}")
    return value


def _unfit(key: str, value: Any, fix: str) -> Refused:
    return Refused(
        Reason.INVALID_REQUEST, f"the task's metadata has {key} = {value!r:.80}: {fix}", subject=key
    )
