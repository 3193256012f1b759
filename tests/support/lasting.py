"""What is left of a trajectory when one asks whether another run repeated it."""

from __future__ import annotations

from dataclasses import replace

from toolwright.types import CallTimings, Segment, Trajectory, TrajectoryTimings


def lasting(trajectory: Trajectory) -> Trajectory:
    """All of it but times, and the name that each run gives to the line of its weights."""
    return replace(
        trajectory,
        sequences=tuple(
            replace(one, segments=tuple(map(_without_lineage, one.segments)))
            for one in trajectory.sequences
        ),
        calls=tuple(
            replace(
                call,
                timings=CallTimings(),
                outcome=replace(call.outcome, queued_s=0.0, run_s=0.0),
            )
            for call in trajectory.calls
        ),
        timings=TrajectoryTimings(),
        action_timings=(),
    )


def _without_lineage(segment: Segment) -> Segment:
    version = segment.weight_version
    return replace(segment, weight_version=version and replace(version, lineage=""))
