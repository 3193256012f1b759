"""What a run is compared by: held-out scores of its last version, and its reward over the steps.

Only scores of the last step count: an older one would be too good or too bad for the run. All runs
have one threshold: the requested one, else the reward after nine tenths of the base's way from its
first rewards to its last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from console.ablate.results.curves import Curve, beginning, end, height, reached
from console.record.run import RunFiles
from console.record.types import WAYS, Evaluation
from console.report.suites import NamedSuite
from console.verdict import score
from toolwright.statistics import mean_of

REWARD, AREA, STEPS = "reward", "area", "steps"
WAY = 0.9
"""Share of the base's gain: later the curve is flat, and its crossing of a line is chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A column. form: how its numbers are written. main: it stands in the first table."""

    key: str
    title: str
    what: str
    form: Literal["score", "steps"] = "score"
    main: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run: values by measure, and standard errors over questions of those that have one.
    never: it did not come to the threshold. remarks: what is missing, a sentence each."""

    values: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    never: bool = False
    remarks: tuple[str, ...] = ()


def measures(named: Sequence[NamedSuite], *, by: str, threshold: float | None) -> list[Measure]:
    """asked: suites, the first counts. by: part of the reward; empty = the whole."""
    reward = f"reward/{by}" if by else "reward"
    found = [
        Measure(
            key=suite,
            title=f"{one.title}, {way}",
            what=f"mean {reward} on {suite} under the last version",
            main=one is named[0],
        )
        for one in named
        for way in WAYS
        if (suite := one.ways.get(way)) is not None
    ]
    found += [
        Measure(key=REWARD, title=f"{reward}, at the end", what="mean of the last fifth of steps"),
        Measure(
            key=AREA, title=f"{reward}, area", what="area under the curve over its width, in steps"
        ),
    ]
    if threshold is not None:
        what = f"first step at which the mean of the last five {reward}s is {threshold:.3g}"
        found.append(Measure(key=STEPS, title=f"steps to {threshold:.3g}", what=what, form="steps"))
    return found


def measure(
    run: RunFiles, named: Sequence[NamedSuite], *, by: str, threshold: float | None
) -> Measured:
    """Measures of a run that has made its steps."""
    values: dict[str, float] = {}
    errors: dict[str, float] = {}
    remarks = []
    for suite in (suite for one in named for suite in one.ways.values()):
        last = last_of(run, suite)
        found = None if last is None else value_of(last, by)
        if last is None or found is None:
            why = f"has no part {by!r}" if last is not None else "was not measured"
            remarks.append(f"{suite} {why} at step {run.steps}")
            continue
        values[suite] = found
        if not by:
            errors[suite] = score(last).stderr
    curve = rewards(run, by)
    if not curve and run.steps:  # a run of no steps has no curve to lack
        remarks.append(f"no step has a {'reward' if not by else f'part {by!r} of the reward'}")
    crossed = None if threshold is None else reached(curve, threshold)
    numbers = ((REWARD, end(curve)), (AREA, height(curve)), (STEPS, crossed))
    values |= {key: value for key, value in numbers if value is not None}
    never = threshold is not None and crossed is None
    return Measured(values=values, errors=errors, never=never, remarks=tuple(remarks))


def threshold_of(base: Iterable[RunFiles], by: str) -> float | None:
    """From the base's runs; None where they gained nothing."""
    curves = [rewards(run, by) for run in base]
    first = mean_of(at for curve in curves if (at := beginning(curve)) is not None)
    last = mean_of(at for curve in curves if (at := end(curve)) is not None)
    if first is None or last is None or last.mean <= first.mean:
        return None
    return first.mean + WAY * (last.mean - first.mean)


def rewards(run: RunFiles, by: str) -> Curve:
    """Training rewards, or one part of them."""
    key = f"reward/{by}" if by else "reward"
    found = ((float(step.step), step.values.get(key)) for step in run.record.steps)
    return [(at, value) for at, value in found if value is not None]


def last_of(run: RunFiles, suite: str) -> Evaluation | None:
    """That of the version after the last step."""
    return next((one for one in run.record.curve(suite) if one.step == run.steps), None)


def value_of(one: Evaluation, by: str) -> float | None:
    return one.parts.get(by) if by else one.reward
