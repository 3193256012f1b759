"""ablate.html: one file that needs nothing else, no network either. It shows the figures of
ablate.json and nothing beside them; what a recipe or a run wrote is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from console.ablate.results.plots import style_of
from console.ablate.results.table import difference, ended, legend, mean, number
from console.ablate.standing import Word
from console.report.plot import draw
from console.report.plot import legend as lines_of
from console.report.writing import REPORT
from toolwright.page import pages
from toolwright.page.text import fit


def render(data: Mapping[str, Any]) -> str:
    """The whole page of `figures.figures`, as it is or read back from ablate.json."""
    return pages.render("console", "ablate/results/page.html.jinja", _content(data))


def _content(data: Mapping[str, Any]) -> dict[str, Any]:
    charts = [
        {
            "title": plot["title"],
            "note": plot.get("note", ""),
            "svg": Markup(draw(plot, wide=place == 0)),
            "legend": [(style, plot["lines"][n]["name"]) for style, n in lines_of(plot)],
        }
        for place, plot in enumerate(data["plots"])
    ]
    return {
        "data": data,
        "main": [one for one in data["measures"] if one["main"]],
        "others": [one for one in data["measures"] if not one["main"]],
        "wide": charts[:1],
        "charts": charts[1:],
        "done": str(Word.DONE),
        "legend": legend(data),
        "mean": mean,
        "difference": difference,
        "ended": ended,
        "number": number,
        "style_of": style_of,
        "link": lambda run: quote(f"{run['folder']}/{REPORT}"),
        "fit": fit,
    }
