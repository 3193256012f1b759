"""Scores: what the reward function takes out of the loss stays out, and nothing is scored twice."""

from __future__ import annotations

from collections.abc import Mapping

from bench.history.derived.contents import checksum
from bench.history.events import Journaled, Offered, Planned, RewardCalled, Seen
from bench.history.findings import Findings, Handler, Invariant, Judge
from bench.history.names import trajectory_of

MASKED = Invariant(
    name="masks_stay",
    promise="A trajectory that its reward function masks, or that infrastructure ended, carries no "
    "loss.",
    source="engine/core/rewards/settle.py",
)
SCORED_ONCE = Invariant(
    name="scored_once",
    promise="A trajectory whose score is in the journal is not scored again.",
    source="engine/serving/crew/member.py",
)


class Scores(Judge):
    invariants = (MASKED, SCORED_ONCE)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._masks: dict[tuple[str, int], bool] = {}
        """Trajectory and contents to whether the latest score masks them."""
        self._known: dict[str, int] = {}
        """Trajectory to the contents of its latest score."""
        self._durable: set[tuple[str, int]] = set()

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {RewardCalled: self._judge, Journaled: self._journaled, Offered: self._offered}

    def _judge(self, index: int, event: RewardCalled) -> None:
        known = event.trajectory, event.contents
        if event.alone and known in self._durable:
            self.findings.breaks(
                SCORED_ONCE,
                index,
                f"{event.trajectory} was scored again; the journal had its score",
                event.trajectory,
            )
        self._masks[known] = event.masks
        self._known[event.trajectory] = event.contents

    def _journaled(self, _index: int, event: Journaled) -> None:
        trajectory = trajectory_of(event.attempt)
        contents = self._known.get(trajectory)
        if event.scored and event.open and contents is not None:
            self.findings.judged(SCORED_ONCE)
            self._durable.add((trajectory, contents))

    def _offered(self, index: int, event: Offered) -> None:
        for member in event.members:
            contents = checksum(one.token_ids for one in member.segments)
            masks = self._masks.get((member.trajectory, contents), False)
            if not (masks or member.errored):
                continue
            self.findings.judged(MASKED)
            if not member.masked:
                why = "infrastructure ended it" if member.errored else "its score masks it"
                self.findings.breaks(
                    MASKED,
                    index,
                    f"{member.trajectory} carries loss, and {why}",
                    event.group,
                    member.trajectory,
                )
