"""Attempts at one trajectory: another one where infrastructure failed, and what is left where all
have."""

from __future__ import annotations

from dataclasses import replace

from engine.errors import AttemptFailed
from engine.rollout.assignment import Assignment, Setting
from engine.rollout.rollout import Rollout
from toolwright.types import Event, Status, Trajectory


async def run_trajectory(
    setting: Setting, assignment: Assignment, *, max_attempts: int
) -> Trajectory:
    """Attempts until one is finished; after the last failure a masked, errored trajectory."""
    for number in range(max_attempts):
        attempt = replace(assignment, attempt=f"{assignment.attempt}{number}")
        try:
            trajectory = await Rollout(setting, attempt).run()
        except AttemptFailed as error:
            failure = error
            if error.permanent:
                break
        else:
            return replace(trajectory, attempt=number)
    return Trajectory(
        id=assignment.trajectory_id,
        group_id=assignment.group_id,
        index=assignment.index,
        attempt=number,
        task=assignment.task,
        sequences=(),
        status=Status.ERRORED,
        stop_reason=failure.stop_reason,
        masked=True,
        events=(
            Event(
                kind="attempt_failed",
                turn=0,
                data={"error": str(failure), "permanent": failure.permanent},
            ),
        ),
        tokenizer_hash=setting.tokenizer_hash,
        metadata={"final_text": ""},
    )
