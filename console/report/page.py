"""report.html: one file that needs nothing else, no network either.

It shows the figures of summary.json and nothing beside them: the template names a figure by its
place, and the page says with every one which it is, in `data-figure`. Charts are drawn from the
same data. Everything that a process wrote is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from console.record.types import Sample
from console.report.figures import lookup
from console.report.plot import Plot, draw, legend
from console.report.transcript import segments, verdict
from console.watch.status import duration
from toolwright.page import pages
from toolwright.page.charts import Part, stacked_bar
from toolwright.page.text import fit, text

AUTHORS = ("prompt", "model", "tool", "memory", "template", "system")
MOST_SETTINGS = 2000


def render(figures: Mapping[str, Any]) -> str:
    """The whole page of `figures.figures`, as it is or read back from summary.json."""
    return pages.render("console", "report/page.html.jinja", _content(figures))


def shown(value: Any, form: str) -> str:
    """A figure as the page has it. `form`: see FORMS; "text" for what is no number."""
    return fit(str(value)) if form == "text" else FORMS[form](float(value))


def pointer(path: Sequence[str | int]) -> str:
    """The place of a figure in summary.json (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


FORMS = {
    "count": lambda value: f"{value:,.0f}",
    "score": lambda value: f"{value:.3f}",
    "mean": lambda value: f"{value:.2f}",
    "small": lambda value: f"{value:.2g}",
    "bytes": lambda value: f"{value / 2**30:.1f} GiB",
    "duration": duration,
    "seconds": _seconds,
}


def _content(data: Mapping[str, Any]) -> dict[str, Any]:
    def figure(*path: str | int, form: str = "text") -> Markup:
        return figure_at(path, form)

    def figure_at(path: Sequence[str | int], form: str) -> Markup:
        value = lookup(data, path)
        tag = "span" if form == "text" else "data"
        raw = "" if form == "text" else f' value="{float(value)!r}"'
        place = f'data-figure="{text(pointer(path))}" data-form="{form}"'
        return Markup(f"<{tag}{raw} {place}>{text(shown(value, form))}</{tag}>")

    curve = data["curve"]
    return {
        "figure": figure,
        "figure_at": figure_at,
        "data": data,
        "ways": [way for way in ("sampled", "greedy") if _any(data, way)],
        "curve": None if curve is None else _chart(("curve",), curve, wide=True),
        "suites": [_chart(("suite_plots", i), plot) for i, plot in enumerate(data["suite_plots"])],
        "measured": [
            _chart(("measured_plots", i), plot) for i, plot in enumerate(data["measured_plots"])
        ],
        "plots": [_chart(("plots", i), plot) for i, plot in enumerate(data["plots"])],
        "bars": [_bar(one) for one in data["breakdowns"]],
        "traces": [
            [_trace(s, one["suite"], one["step"]) for s in one["samples"]]
            for one in data["samples"]
        ],
        "settings": "\n".join(
            f"{key} = {value}"
            for key, value in list(data["settings"]["values"].items())[:MOST_SETTINGS]
        ),
        "found": lambda path: lookup(data, path),
        "fit": fit,
        "href": lambda path: quote(fit(path)),
    }


def _any(data: Mapping[str, Any], way: str) -> bool:
    return any(suite.get(way) for suite in data["suites"].values())


def _chart(path: Sequence[str | int], plot: Plot, *, wide: bool = False) -> dict[str, Any]:
    """path: the plot's place."""
    return {
        "path": tuple(path),
        "plot": plot,
        "svg": Markup(draw(plot, wide=wide)),
        "legend": legend(plot) if len(legend(plot)) > 1 or wide else [],
    }


def _bar(one: Mapping[str, Any]) -> Markup:
    parts = [
        Part(
            name=part["name"],
            style=f"c{number}",
            value=part["seconds"],
            text=_seconds(part["seconds"]),
        )
        for number, part in enumerate(one["parts"])
    ]
    return Markup(stacked_bar(parts))


def _trace(found: Mapping[str, Any], suite: str, step: int) -> dict[str, Any]:
    sample = Sample(
        suite=suite,
        step=step,
        index=found["index"],
        reward=found["reward"],
        stop_reason=found["stop_reason"],
        answers=tuple(found["answers"]),
        segments=tuple((author, text) for author, text in found["segments"]),
    )
    whole = segments(sample)
    return {
        "question": "".join(text for author, text in whole[:1] if author == "prompt"),
        "segments": [
            (author if author in AUTHORS else "other", text)
            for number, (author, text) in enumerate(whole)
            if number or author != "prompt"
        ],
        "right": sample.reward > 0,
        "verdict": verdict(sample),
    }
