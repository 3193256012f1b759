"""Curves of a ladder: one line a variation, the mean over its seeds, with its standard error. Pure.

Plots are those of `report.plot`. Rewards are smoothed by seed before their mean. So the area around
a line shows how seeds differ, not the noise of a single step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from console.ablate.results.curves import WINDOW, Curve, smoothed, together
from console.ablate.results.measures import evaluated, rewards
from console.record.run import RunFiles
from console.record.types import WAYS
from console.report.measured import MOST_FIGURES, UNIT, figures_of, tell_left_out
from console.report.suites import NamedSuite
from toolwright.page.plot import Plot, colour, plot, short, thin
from toolwright.reward_figures import METRIC

BESIDE = (
    ("groups_with_signal", "Groups with a signal", "groups of a step"),
    ("response_length", "Written by the policy", "tokens a trajectory"),
    ("calls", "Tool calls", "calls a trajectory"),
    ("entropy", "Entropy", "nats a token"),
    ("kl_reference", "KL to the reference", "nats a token"),
    ("gap_max", "Sampler against learner, largest", "|log-prob difference|"),
)
"""Metrics of the learner that tell why a variation is what it is."""
MOST_PARTS = 7
"""Parts of the reward: their names are a stranger's."""

Runs = Mapping[str, Sequence[RunFiles]]
"""By the variation's name; its place is its colour."""


def plots(runs: Runs, main: NamedSuite | None, *, by: str) -> list[Plot]:
    """The first is the one of the reward. main: the suite that counts; by: see `measures`."""
    reward = f"reward/{by}" if by else "reward"
    found = [
        _plot(
            "reward",
            f"The {reward} of training",
            f"mean of {WINDOW} steps",
            runs,
            lambda run: smoothed(rewards(run, by)),
        )
    ]
    for way in WAYS if main is not None else ():
        assert main is not None
        if (suite := main.ways.get(way)) is not None:
            found.append(
                _plot(
                    f"suite:{suite}",
                    f"{main.title}, {way}",
                    f"mean {reward}",
                    runs,
                    partial(evaluated, suite=suite, by=by),
                    dots="seen",
                )
            )
    parts = [(part, part, f"mean of {WINDOW} steps") for part in _parts(runs)]
    names = figures_of([run for of in runs.values() for run in of])
    measured = [(METRIC + name, name, UNIT) for name in names[:MOST_FIGURES]]
    drawn = [
        one
        for key, title, unit in (*parts, *measured, *BESIDE)
        if (one := _plot(key, title, unit, runs, partial(_metric, key=key))) is not None
    ]
    tell_left_out(names, [one for one in drawn if one["key"].startswith(METRIC)])
    return [*(one for one in found if one is not None), *drawn]


def _plot(
    key: str,
    title: str,
    unit: str,
    runs: Runs,
    curve: Callable[[RunFiles], Curve],
    *,
    dots: str = "hover",
) -> Plot | None:
    lines = [
        _line(name, place, [found for run in of if (found := curve(run))], dots)
        for place, (name, of) in enumerate(runs.items())
    ]
    whole = all(0 <= y <= 1 for line in lines for y in line["y"])
    shares = whole and key.startswith(("reward", "suite:"))
    return plot(key, title, unit, lines, low=0.0 if shares else None, high=1.0 if shares else None)


def _line(name: str, place: int, curves: Sequence[Curve], dots: str) -> dict[str, Any]:
    points = together(curves)
    errors = {step: error for step, _, error in points}
    kept = thin([(step, mean) for step, mean, _ in points])
    return {
        "name": name,
        "run": "",
        "style": colour(place),
        "dots": dots,
        "band": dots != "seen" and any(errors.values()),
        "x": [step for step, _ in kept],
        "y": [short(mean) for _, mean in kept],
        "error": [short(errors[step]) for step, _ in kept],
    }


def _parts(runs: Runs) -> list[str]:
    """Names of the reward's parts, where there are several."""
    names = {
        name
        for of in runs.values()
        for run in of
        for step in (*run.record.steps[:1], *run.record.steps[-1:])
        for name in step.values
        if name.startswith("reward/")
    }
    return sorted(names)[:MOST_PARTS] if len(names) > 1 else []


def _metric(run: RunFiles, *, key: str) -> Curve:
    found = ((float(step.step), step.values.get(key)) for step in run.record.steps)
    return smoothed([(at, value) for at, value in found if value is not None])
