"""Every token of a trajectory against its plan. Pure."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import zip_longest

from bench.makespan.plan import Plan
from bench.scripted.script import default_logprob
from toolwright.types import Trajectory


@dataclass(slots=True, kw_only=True)
class Said:
    """What was recorded of a trajectory, one entry a token. logprobs: 0.0 where the policy did not
    write."""

    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add(self, ids: list[int], by_policy: bool, logprobs: list[float]) -> None:
        self.ids += ids
        self.mask += [by_policy] * len(ids)
        self.logprobs += logprobs

    @classmethod
    def asked(cls, plan: Plan) -> Said:
        """The prompt alone."""
        said = cls()
        said.add(list(plan.prompt), False, [0.0] * len(plan.prompt))
        return said

    @classmethod
    def of(cls, trajectory: Trajectory) -> Said:
        """Its only sequence; nothing for one that has failed."""
        said = cls()
        for sequence in trajectory.sequences:
            said.ids += list(sequence.token_ids)
            said.mask += [bool(trains) for trains in sequence.loss_mask]
            said.logprobs += list(sequence.logprobs)
        return said


def wrong_tokens(plan: Plan, said: Said) -> int:
    """Positions whose id, mask or log-prob (as float32) is another than planned, those that are
    missing and those that are too many."""
    expected = Said()
    for by_policy, ids in plan.runs():
        logprobs = [default_logprob(i, place) for place, i in enumerate(ids)]
        expected.add(ids, by_policy, logprobs if by_policy else [0.0] * len(ids))
    return sum(
        found != wanted for found, wanted in zip_longest(_rows(said), _rows(expected), fillvalue=())
    )


def _rows(said: Said) -> zip[tuple[int, bool, float]]:
    return zip(said.ids, said.mask, array("f", said.logprobs), strict=True)
