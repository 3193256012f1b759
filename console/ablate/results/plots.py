"""Curves of a ladder: one line a variation, the mean over its seeds, with its standard error. Pure.

They are lines of the report's plots. Training is smoothed by seed before the mean. So the area
around a line shows how seeds differ, not the noise of a single step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.ablate.results.curves import WINDOW, Curve, together
from console.record.run import RunFiles
from console.report.sections import every_plot, fits
from toolwright.page.plot import Plot, colour, plot, smooth, thinned

REWARD = "reward"
SHOWN = (
    *("suite:", "part:", "rate:", REWARD, "measured:", "task:"),
    *("signal", "length", "calls", "entropy", "kl", "gap"),
)
"""Plots of a report that tell why a variation is what it is; their order on the page. `fits`
says which keys are meant."""

Runs = Mapping[str, Sequence[RunFiles]]
"""By the variation's name; its place is its colour."""


@dataclass(slots=True, kw_only=True)
class _Laid:
    """One line of a plot for several variations: the curves of their seeds."""

    of: Plot
    title: str
    measured: bool
    curves: dict[str, list[Curve]] = field(default_factory=dict)


def plots(runs: Runs, *, by: str) -> list[Plot]:
    """The first is the one of the reward. by: the part of it that counts; "" = the whole."""
    found: dict[tuple[str, str], _Laid] = {}
    for name, seeds in runs.items():
        for run in seeds:
            for of in every_plot([run]):
                for one in of["lines"] if _rank(of["key"]) < len(SHOWN) else ():
                    laid = found.setdefault((of["key"], one["name"]), _laid(of, one))
                    laid.curves.setdefault(name, []).append(_curve(one))
    counted = (REWARD, by if (REWARD, by) in found else REWARD)
    order = sorted(found, key=lambda key: (key != counted, _rank(key[0])))
    drawn = (_drawn(key, found[key], list(runs)) for key in order)
    return [one for one in drawn if one is not None]


def _rank(key: str) -> int:
    for place, shown in enumerate(SHOWN):
        if fits(key, shown):
            return place
    return len(SHOWN)


def _laid(of: Plot, one: Mapping[str, Any]) -> _Laid:
    title = of["title"] if len(of["lines"]) == 1 else f"{of['title']}: {one['name']}"
    return _Laid(of=of, title=title, measured=one["dots"] == "seen")


def _curve(one: Mapping[str, Any]) -> Curve:
    values = one["y"] if one["dots"] == "seen" else smooth(one["y"], WINDOW)
    return list(zip(one["x"], values, strict=True))


def _drawn(key: tuple[str, str], laid: _Laid, names: Sequence[str]) -> Plot | None:
    lines: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        points = together(laid.curves.get(name, ()))
        errors = [error for _, _, error in points]
        lines.append(
            {
                "name": name,
                "run": "",
                "style": colour(place),
                "dots": "seen" if laid.measured else "hover",
                "band": not laid.measured and any(errors),
                "x": [step for step, _, _ in points],
                "y": [mean for _, mean, _ in points],
                "error": errors,
            }
        )
    unit = laid.of["unit"] if laid.measured else f"{laid.of['unit']}, mean of {WINDOW} steps"
    shares = all(0 <= y <= 1 for one in lines for y in one["y"])
    low, high = (0.0, 1.0) if shares and key[0].startswith((REWARD, "suite:")) else (None, None)
    drawn = plot(":".join(key), laid.title, unit, lines, note=laid.of["note"], low=low, high=high)
    return None if drawn is None else thinned(drawn)
