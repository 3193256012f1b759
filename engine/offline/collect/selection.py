"""Which trajectories of a task are kept, and the counts over all tasks; pure.

Invariants
- Trajectories are looked at in the order of their numbers, once all of the task have ended. The
  order in which they end plays no part: it would prefer the short ones.
- Counts add up: rolled out = kept + infrastructure + reward failed + masked + first refusals by
  each criterion + duplicates + over the cap. All refusals by a criterion, and those by it alone,
  are further counts of the same trajectories.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toolwright.types import Ids


class SelectionOutcome(StrEnum):
    """What became of a trajectory."""

    KEPT = "kept"
    FILTERED = "filtered"
    """A criterion of --keep refused it."""
    DUPLICATE = "duplicate"
    """An earlier one has the same actions or calls (--dedupe)."""
    OVER_CAP = "over_the_cap"
    """Its task already has --most-per-task trajectories."""
    REWARD_FAILED = "reward_failed"
    """The reward function raised, took too long or returned no number."""
    MASKED = "masked"
    """The reward function or the rules of [task] took it out of the loss."""
    ERRORED = "errored"
    """Infrastructure ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A scored trajectory."""

    errored: bool
    reward_failed: bool = False
    masked: bool
    refused_by: tuple[str, ...] = ()
    """Names of the criteria that refuse it, in their order."""
    excerpt: str = ""
    """One line about a refused one, for users."""
    mark: str
    """Equal for duplicates."""


@dataclass(slots=True)
class Totals:
    """Counts over all tasks of a collection."""

    tasks: int = 0
    """DecidedTask tasks, bad rows included."""
    bad_rows: int = 0
    last_bad: str = ""
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    refused_first: Counter[str] = field(default_factory=Counter)
    refused_alone: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """Excerpt of the first trajectory that each criterion refused."""
    not_exported: dict[str, Counter[str]] = field(default_factory=dict)
    """Kept trajectories that an export lacks, by layout and reason."""
    read: int = 0
    """Prompt tokens of all actions."""
    written: int = 0
    """Tokens that the policy wrote."""
    seconds: float = 0.0
    """Time of rolling out."""

    @property
    def rolled_out(self) -> int:
        return self.outcomes.total()

    @property
    def kept(self) -> int:
        return self.outcomes[SelectionOutcome.KEPT]

    @property
    def no_reward(self) -> bool:
        """The reward function failed for every trajectory, and there was at least one."""
        scored = self.rolled_out - self.outcomes[SelectionOutcome.ERRORED]
        return 0 < scored == self.outcomes[SelectionOutcome.REWARD_FAILED]

    def enter(self, row: Mapping[str, Any]) -> None:
        """Counts a decided task. row: its line in the progress file."""
        self.tasks += 1
        self.outcomes.update(row["verdicts"])
        for names in row["refused"]:
            self.refused.update(names)
            self.refused_first[names[0]] += 1
            if len(names) == 1:
                self.refused_alone[names[0]] += 1
        self.examples = {**row.get("examples", {}), **self.examples}
        for layout, reasons in row["untold"].items():
            self.not_exported.setdefault(layout, Counter()).update(reasons)
        self.read += row["read"]
        self.written += row["written"]
        self.seconds = max(self.seconds, row["seconds"])
        if row["bad"]:
            self.bad_rows += 1
            self.last_bad = row["bad"]


def select(
    candidates: Sequence[Candidate], seen: Collection[str], most: int | None
) -> list[SelectionOutcome]:
    """The outcome of each of a task's candidates.

    seen: marks of trajectories kept before. most: most trajectories kept of the task; None = all.
    """
    new: set[str] = set()
    found = []
    for one in candidates:
        outcome = _outcome_alone(one)
        if outcome is SelectionOutcome.KEPT and (one.mark in seen or one.mark in new):
            outcome = SelectionOutcome.DUPLICATE
        if outcome is SelectionOutcome.KEPT and most is not None and len(new) >= most:
            outcome = SelectionOutcome.OVER_CAP
        if outcome is SelectionOutcome.KEPT:
            new.add(one.mark)
        found.append(outcome)
    return found


def mark_of(prompt: Ids, actions: Iterable[str]) -> str:
    """A hash of the prompt and the texts of the actions."""
    digest = hashlib.sha256(prompt.tobytes())
    for action in actions:
        text = action.encode(errors="surrogatepass")
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()[:24]


def _outcome_alone(candidate: Candidate) -> SelectionOutcome:
    if candidate.errored:
        return SelectionOutcome.ERRORED
    if candidate.reward_failed:
        return SelectionOutcome.REWARD_FAILED
    if candidate.masked:
        return SelectionOutcome.MASKED
    return SelectionOutcome.FILTERED if candidate.refused_by else SelectionOutcome.KEPT
