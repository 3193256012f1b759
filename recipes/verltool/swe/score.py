"""VerlTool's reward of software engineering: what the verification of the submission says.

In training the part `solved` is the reward (equation 13), and [task.stops] says which stops make it
0 and leave the loss. An evaluation knows no such rules: its reward is whether the submission solved
the task, and beside it stands what the verification saw.

Tests run in the tool, at `submit`, in a box that the policy never had
(docs/tools/shipped/swe.md): nothing that a policy writes is read here.
"""

from __future__ import annotations

from engine.api import Score
from tasks.judging.outcomes import solved
from toolwright.types import Purpose, StopReason, Trajectory

METRICS = ("tests_passed", "tests_wanted", "tests_seconds", "tampered_files")
"""What the tool tells of a verification."""


def score(trajectory: Trajectory) -> Score:
    """1 for a submission that its tests accept, else 0. Raises ValueError for a submission
    that had no tests: that is no wrong answer."""
    figures = {"submitted": 0.0, **dict.fromkeys(METRICS, 0.0)}
    passed = False
    ended_normally = trajectory.stop_reason is StopReason.TOOL_SIGNALED_DONE
    if ended_normally:
        verdict = trajectory.calls[-1].outcome
        if verdict.reward is None:
            raise ValueError(
                f"task {trajectory.task.id!r} was submitted and nothing verified it: name a "
                "verification in its metadata, and the folder in swe.verifications"
            )
        passed = verdict.reward == 1.0
        figures["submitted"] = 1.0
        figures |= {name: verdict.metrics.get(name, 0.0) for name in METRICS}
    worth = solved(passed, ended_normally=ended_normally)
    if trajectory.task.purpose is Purpose.TRAIN:
        return Score.of({"solved": worth}, measured=figures)
    return Score.of({"solved": worth, **figures}, reward=worth)
