"""The groups of exactly one training step.

Leases until the step is full, skips what the ledger has seen, enters the rest. The ledger becomes
durable with the next checkpoint, together with the weights that the groups led to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from learner.errors import WorthlessError
from learner.intake.ledger import Ledger, Verdict
from toolwright.types import Group, WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """One step's groups; how many offered groups were skipped; how long it took."""

    groups: tuple[Group, ...]
    duplicates: int
    conflicts: int
    seconds: float


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
) -> Leased:
    """`count` groups that were never consumed, entered into the ledger at `version`.

    beat: called after every lease that leaves the step incomplete. hopeless: asked after one that
    brought nothing; a sentence where no group will come, which is then a WorthlessError.
    """
    started = time.monotonic()
    groups: list[Group] = []
    skipped = {Verdict.DUPLICATE: 0, Verdict.CONFLICT: 0}
    while len(groups) < count:
        offered = leases.lease(
            after=ledger.mark, count=count - len(groups), version=version, wait=wait
        )
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
            if why := hopeless():
                raise WorthlessError(f"the engine samples no more: {why}")
            waited = time.monotonic() - started
            say(f"waiting for groups: {len(groups)} of {count} after {waited:.0f} s")
        if len(groups) < count:
            beat()
    return Leased(
        groups=tuple(groups),
        duplicates=skipped[Verdict.DUPLICATE],
        conflicts=skipped[Verdict.CONFLICT],
        seconds=time.monotonic() - started,
    )
