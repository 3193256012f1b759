"""The groups of exactly one training step.

Leases until the step is full, skips what the ledger has seen, enters the rest. The ledger becomes
durable with the next checkpoint, together with the weights that the groups led to. A trajectory
whose reward is no number leaves its group here, before the others are compared with it.
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
"""Beyond it a float32 is infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """One step's groups; trajectories that left them because a reward is no finite number; those
    that were masked because of an image; how many offered groups were skipped; how long it took."""

    groups: tuple[Group, ...]
    nonfinite: tuple[str, ...]
    duplicates: int
    conflicts: int
    seconds: float
    unreadable: tuple[str, ...] = ()


class Leases(Protocol):
    """Who asks the engine for groups: `EngineClient`, or `Ahead` of it."""

    def lease(
        self, *, after: int, count: int, version: WeightVersion, wait: float
    ) -> list[Group]: ...


def lease_step(
    leases: Leases,
    ledger: Ledger,
    *,
    version: WeightVersion,
    count: int,
    wait: float,
    say: Callable[[str], None],
    beat: Callable[[], None],
    hopeless: Callable[[], str],
    waiting: Callable[[], AbstractContextManager[object]],
) -> Leased:
    """`count` groups that were never consumed, entered into the ledger at `version`.

    beat: called after every lease that leaves the step incomplete. hopeless: asked after one that
    brought nothing; a sentence where no group will come, which is then a WorthlessError. waiting:
    is held while the engine is waited for; what it raises leaves the ledger half way.
    """
    started = time.monotonic()
    groups: list[Group] = []
    skipped = {Verdict.DUPLICATE: 0, Verdict.CONFLICT: 0}
    while len(groups) < count:
        with waiting():
            offered = leases.lease(
                after=ledger.mark, count=count - len(groups), version=version, wait=wait
            )
            why = "" if offered else hopeless()
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
            beat()
    finite, left = without_nonfinite(groups)
    if left:
        say(
            f"{len(left)} trajectories left the batch, a reward of theirs is no finite number; the "
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
    """The groups without trajectories that have a reward, or a part of one, that is not finite; and
    the ids of those. A group of nothing else is left out."""
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
