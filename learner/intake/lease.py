"""The groups of exactly one training step.

Leases until the step is full, skips groups that the ledger knows, enters the others. The ledger
becomes durable with the next checkpoint, together with the weights that trained on the groups. A
trajectory whose reward is not finite leaves its group here, before the others are compared with it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from learner.errors import WorthlessError
from learner.intake.ledger import Ledger, Verdict
from toolwright.types import Group, Trajectory, WeightVersion

LARGEST_REWARD = 3.4e38
"""Largest size of a reward; beyond it a float32 is infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """The groups of one step."""

    groups: tuple[Group, ...]
    nonfinite: tuple[str, ...]
    """Trajectories that left their groups because a reward is not finite."""
    duplicates: int
    """Number of offered groups that were consumed before, with the same content."""
    conflicts: int
    """Number of offered groups that were consumed before, with other content."""
    seconds: float
    """Time of the lease."""
    unreadable: tuple[str, ...] = ()
    """Trajectories that were masked because an image cannot be read."""


class GroupSource(Protocol):
    """A source of groups: `EngineClient`, or a `Prefetch` of it."""

    def lease(
        self, *, after: int, count: int, version: WeightVersion, wait: float
    ) -> list[Group]: ...


def lease_step(
    source: GroupSource,
    ledger: Ledger,
    *,
    version: WeightVersion,
    count: int,
    wait: float,
    say: Callable[[str], None],
    heartbeat: Callable[[], None],
    why_none: Callable[[], str],
    waiting: Callable[[], AbstractContextManager[object]],
) -> Leased:
    """`count` groups that were never consumed, entered into the ledger at `version`.

    heartbeat: called after every lease that leaves the step incomplete. why_none: called after an
    empty lease; why no group will come, empty if one may. waiting: context of each wait for the
    engine; an error from it leaves the ledger half filled.

    Raises WorthlessError if no group will come.
    """
    started = time.monotonic()
    groups: list[Group] = []
    skipped = {Verdict.DUPLICATE: 0, Verdict.CONFLICT: 0}
    while len(groups) < count:
        with waiting():
            offered = source.lease(
                after=ledger.mark, count=count - len(groups), version=version, wait=wait
            )
            why = "" if offered else why_none()
        for group in offered:
            verdict = ledger.judge(group.id, group.content_hash)
            if verdict is Verdict.NEW:
                groups.append(group)
                ledger.consume(
                    sequence_number=group.sequence_number,
                    group=group.id,
                    content_hash=group.content_hash,
                    version=version,
                )
                continue
            ledger.pass_over(group.sequence_number)
            skipped[verdict] += 1
            say(f"group {group.id} was trained on before ({verdict.value}): skipped")
        if not offered:
            if why:
                raise WorthlessError(f"the engine samples no more: {why}")
            waited = time.monotonic() - started
            say(f"waiting for groups: {len(groups)} of {count} after {waited:.0f} s")
        if len(groups) < count:
            heartbeat()
    finite, left = without_nonfinite(groups)
    if left:
        say(
            f"{len(left)} trajectories left the batch because a reward is not a finite number; the "
            f"first is {left[0]}"
        )
    return Leased(
        groups=finite,
        nonfinite=left,
        duplicates=skipped[Verdict.DUPLICATE],
        conflicts=skipped[Verdict.CONFLICT],
        seconds=time.monotonic() - started,
    )


def without_nonfinite(groups: Sequence[Group]) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """(groups without trajectories whose reward or part of it is not finite, ids of those).

    Leaves out a group that has no other trajectory.
    """
    left = tuple(t.id for group in groups for t in group.trajectories if not _finite(t))
    if not left:
        return tuple(groups), ()
    kept = [
        replace(group, trajectories=tuple(t for t in group.trajectories if _finite(t)))
        for group in groups
    ]
    return tuple(group for group in kept if group.trajectories), left


def _finite(trajectory: Trajectory) -> bool:
    values = (trajectory.reward, *(part.value for part in trajectory.reward_parts))
    return all(math.isfinite(value) and abs(value) <= LARGEST_REWARD for value in values)
