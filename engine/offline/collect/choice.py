"""Which trajectories of one task stay, and what became of those of all tasks; pure.

Invariants
- The choice looks at the task's trajectories in the order of their numbers, when all are there.
  Which one was done first plays no part, for that would prefer the short ones.
- Counts add up: rolled out = kept + infrastructure + reward failed + masked + what each criterion
  refused first + duplicates + over the cap. How many a criterion refuses in all, and how many it
  alone refuses, are further counts of the same trajectories.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

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
    REWARD_FAILED = "reward_failed"
    """The reward function raised, took too long or returned no number."""
    MASKED = "masked"
    """The reward function or the rules of [task] took it out of the loss."""
    ERRORED = "errored"
    """Infrastructure ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A scored trajectory. refused_by: the criteria that said no, in their order. mark: the same
    for duplicates."""

    errored: bool
    reward_failed: bool = False
    masked: bool
    refused_by: tuple[str, ...] = ()
    mark: str


@dataclass(slots=True)
class Totals:
    """tasks: decided, bad ones too. untold: kept and not in an export, by layout and reason.
    read, written: tokens of the policy, prompts of every action and actions. seconds: of rolling
    out."""

    tasks: int = 0
    bad_rows: int = 0
    last_bad: str = ""
    verdicts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    refused_first: Counter[str] = field(default_factory=Counter)
    refused_alone: Counter[str] = field(default_factory=Counter)
    untold: dict[str, Counter[str]] = field(default_factory=dict)
    read: int = 0
    written: int = 0
    seconds: float = 0.0

    @property
    def rolled_out(self) -> int:
        return self.verdicts.total()

    @property
    def kept(self) -> int:
        return self.verdicts[Verdict.KEPT]

    @property
    def no_reward(self) -> bool:
        """Trajectories were to be scored, and the reward function failed for every one."""
        scored = self.rolled_out - self.verdicts[Verdict.ERRORED]
        return 0 < scored == self.verdicts[Verdict.REWARD_FAILED]

    def enter(self, row: Mapping[str, Any]) -> None:
        """A decided task, as `store` writes it."""
        self.tasks += 1
        self.verdicts.update(row["verdicts"])
        for names in row["refused"]:
            self.refused.update(names)
            self.refused_first[names[0]] += 1
            if len(names) == 1:
                self.refused_alone[names[0]] += 1
        for layout, reasons in row["untold"].items():
            self.untold.setdefault(layout, Counter()).update(reasons)
        self.read += row["read"]
        self.written += row["written"]
        self.seconds = max(self.seconds, row["seconds"])
        if row["bad"]:
            self.bad_rows += 1
            self.last_bad = row["bad"]


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
    if candidate.reward_failed:
        return Verdict.REWARD_FAILED
    if candidate.masked:
        return Verdict.MASKED
    return Verdict.FILTERED if candidate.refused_by else Verdict.KEPT
