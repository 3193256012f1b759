"""What is wrong with a run that was played: the validator's word, and errors that it cannot see."""

from __future__ import annotations

from dataclasses import dataclass

from bench.history.validator import validate
from bench.simulate.playing.play import Played, Studio
from bench.simulate.schedule import PlannedFault, Schedule
from bench.simulate.shrink import shrunk
from bench.simulate.virtual.loop import Stuck
from bench.simulate.virtual.world import Say

UNEXPECTED = "no_unexpected_error"
"""Name of the promise that the engine ends by its own errors alone, and that no task raises."""
STUCK = "something_always_happens"
"""Name of the promise that a run neither stands still nor goes round and round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A broken promise. text: for people, several lines."""

    invariant: str
    text: str
    faults: tuple[PlannedFault, ...]
    """Those that it was found with."""
    shrunken: tuple[PlannedFault, ...] | None = None
    """Those that it takes; None = not looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """played: None where the run did not come to its end."""

    seed: int
    played: Played | None
    failure: Failure | None


def outcome(studio: Studio, schedule: Schedule, say: Say | None = None) -> Outcome:
    """Plays a schedule and judges it. say: gets the engine's log."""
    try:
        played = studio.play(schedule, say=say)
    except Stuck as error:
        failure = Failure(
            invariant=STUCK, text=f"{STUCK} is broken: {error}", faults=schedule.faults
        )
        return Outcome(seed=schedule.seed, played=None, failure=failure)
    return Outcome(seed=schedule.seed, played=played, failure=_failure(played))


def _failure(played: Played) -> Failure | None:
    faults = played.schedule.faults
    violation = validate(played.history)
    if violation is not None:
        return Failure(invariant=violation.invariant.name, text=str(violation), faults=faults)
    if played.errors:
        text = "\n  ".join((f"{UNEXPECTED} is broken:", *played.errors))
        return Failure(invariant=UNEXPECTED, text=text, faults=faults)
    return None


def shortest(studio: Studio, schedule: Schedule, invariant: str) -> tuple[PlannedFault, ...]:
    """Faults of the schedule that still break the invariant."""

    def fails(faults: tuple[PlannedFault, ...]) -> bool:
        failure = outcome(studio, schedule.with_faults(faults)).failure
        return failure is not None and failure.invariant == invariant

    return shrunk(schedule.faults, fails)
