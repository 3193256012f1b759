"""Compares every token of a trajectory with its plan. Pure."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import zip_longest

from bench.engine.plan import TrajectoryPlan
from bench.scripted.script import default_logprob
from toolwright.types import Trajectory


@dataclass(slots=True, kw_only=True)
class TokenRecord:
    """Record of a trajectory, with one entry a token."""

    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    """Whether the policy wrote the token."""
    logprobs: list[float] = field(default_factory=list)
    """0.0 for tokens of prompt and tools."""

    def add(self, ids: list[int], by_policy: bool, logprobs: list[float]) -> None:
        self.ids += ids
        self.mask += [by_policy] * len(ids)
        self.logprobs += logprobs

    @classmethod
    def of_prompt(cls, plan: TrajectoryPlan) -> TokenRecord:
        """The prompt alone."""
        record = cls()
        record.add(list(plan.prompt), False, [0.0] * len(plan.prompt))
        return record

    @classmethod
    def of(cls, trajectory: Trajectory) -> TokenRecord:
        """The trajectory's only sequence; empty for a failed trajectory."""
        record = cls()
        for sequence in trajectory.sequences:
            record.ids += list(sequence.token_ids)
            record.mask += [bool(trains) for trains in sequence.loss_mask]
            record.logprobs += list(sequence.logprobs)
        return record


def wrong_tokens(plan: TrajectoryPlan, record: TokenRecord) -> int:
    """Number of positions whose id, mask or log-prob (as float32) differs from the plan. Missing
    tokens and additional tokens count."""
    expected = TokenRecord()
    for by_policy, ids in plan.runs():
        logprobs = [default_logprob(i, place) for place, i in enumerate(ids)]
        expected.add(ids, by_policy, logprobs if by_policy else [0.0] * len(ids))
    pairs = zip_longest(_rows(record), _rows(expected), fillvalue=())
    return sum(found != wanted for found, wanted in pairs)


def _rows(record: TokenRecord) -> zip[tuple[int, bool, float]]:
    return zip(record.ids, record.mask, array("f", record.logprobs), strict=True)
