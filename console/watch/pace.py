"""How long it still takes, from the first minute on. Pure.

Seconds of a step come from the learner's own lines, so that who looks in later knows them at once.
The first step compiles, warms caches and often waits for an evaluation: it says nothing of others.
Before the second line the pace is guessed from the trajectories that the engine accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from console.record.types import Step

RECENT = 20
"""Steps that the pace is taken from."""
SURE_S = 5.0
"""Less than this says nothing yet of the first batch."""


def of_steps(
    steps: Sequence[Step], *, last: int, since_s: float, afterwards_s: float
) -> float | None:
    """Seconds until step `last` and what follows it; None before there are two with their seconds.

    since_s: seconds since the newest line; at most one step of them counts. afterwards_s: of the
    last evaluation.
    """
    seconds = [s.values["step_s"] for s in steps[-RECENT:] if s.values.get("step_s")]
    left = max(0, last - steps[-1].step) if steps else 0
    if steps and not left:
        return max(0.0, afterwards_s - since_s)
    if len(seconds) < 2:
        return None
    pace = fmean(seconds[1:])
    return max(0.0, pace * left - min(since_s, pace)) + afterwards_s


def of_first_batches(
    *, accepted: int, batch: int, elapsed_s: float, made: int, steps: int, afterwards_s: float
) -> float | None:
    """Before the second step is over: as many seconds a step as its batch seems to take.

    accepted: trajectories since the first was, elapsed_s: seconds since then. made: steps so far.
    """
    if accepted <= 0 or elapsed_s < SURE_S:
        return None
    a_step = elapsed_s * max(1 / (made + 1), batch / accepted)
    return a_step * max(0, steps - made) + afterwards_s
