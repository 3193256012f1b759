"""Which trajectories of one task stay; pure.

Invariant: the choice looks at the task's trajectories in the order of their numbers, when all are
there. Which one was done first plays no part, for that would prefer the short ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from toolwright.types import Ids


class Verdict(StrEnum):
    """What became of a trajectory."""

    KEPT = "kept"
    FILTERED = "filtered"
    """A criterion of --keep said no."""
    DUPLICATE = "duplicate"
    """Another one says the same: action for action, or call for call (--dedupe)."""
    OVER_CAP = "over_the_cap"
    """--most-per-task others of its task were kept."""
    MASKED = "masked"
    """The reward function or the rules of [task] took it out of the loss."""
    ERRORED = "errored"
    """Infrastructure ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A scored trajectory. refused_by: the criteria that said no, in their order. mark: the same
    for duplicates."""

    errored: bool
    masked: bool
    refused_by: tuple[str, ...] = ()
    mark: str


def choose(
    candidates: Sequence[Candidate], seen: Collection[str], most: int | None
) -> list[Verdict]:
    """The verdict on each of a task's candidates. seen: marks that were kept before. most: that
    may be kept of the task; None = all."""
    new: set[str] = set()
    found = []
    for one in candidates:
        verdict = _alone(one)
        if verdict is Verdict.KEPT and (one.mark in seen or one.mark in new):
            verdict = Verdict.DUPLICATE
        if verdict is Verdict.KEPT and most is not None and len(new) >= most:
            verdict = Verdict.OVER_CAP
        if verdict is Verdict.KEPT:
            new.add(one.mark)
        found.append(verdict)
    return found


def mark_of(prompt: Ids, actions: Iterable[str]) -> str:
    """Equal for trajectories of one prompt whose actions are the same texts."""
    digest = hashlib.sha256(prompt.tobytes())
    for action in actions:
        text = action.encode(errors="surrogatepass")
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()[:24]


def _alone(candidate: Candidate) -> Verdict:
    if candidate.errored:
        return Verdict.ERRORED
    if candidate.masked:
        return Verdict.MASKED
    return Verdict.FILTERED if candidate.refused_by else Verdict.KEPT
