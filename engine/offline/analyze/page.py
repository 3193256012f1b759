"""The findings as one page that needs neither other files nor a network.

Names come from policies and publishers, so all are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from engine.offline.analyze.table import SIZES, law, rate_head, rate_rows, remarks
from toolwright.page import pages
from toolwright.page.charts import Line, Part, Point, line_chart, stacked_bar
from toolwright.page.text import fit

COLOURS = 8
"""Number of colours in the style sheet; later classes share the last one."""


def page(found: Mapping[str, Any], title: str) -> str:
    """The page of `findings`. title: names of the recordings."""
    return pages.render(
        "engine",
        "offline/analyze/page.html.jinja",
        {
            "data": found,
            "title": title,
            "law": law(found),
            "remarks": list(remarks(found)),
            "tiles": _tiles(found),
            "ranks": Markup(_ranks(found)),
            "tiers": [(tier, Markup(_bar(tier["domains"]))) for tier in found["tiers"]],
            "legend": [(_style(place), one["name"]) for place, one in enumerate(found["domains"])],
            "functions": Markup(_bar(found["functions"])),
            "sizes": SIZES,
            "rate_head": rate_head(found),
            "rate_rows": list(rate_rows(found)),
            "fit": fit,
        },
    )


def _tiles(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    fitted = found["power_law"]
    tiles = [
        (f"{found['invocations']:,}", "invocations"),
        (f"{found['unique_tools']:,}", "unique tools, by name and schema"),
        (f"{found['trajectories']:,}", "trajectories"),
    ]
    if fitted is not None:
        tiles.append((f"{fitted['exponent']:.3f}", "exponent of the rank-frequency law"))
        if fitted["r2"] is not None:
            tiles.append((f"{fitted['r2']:.4f}", "R2 of its fit"))
    return tiles


def _ranks(found: Mapping[str, Any]) -> str:
    """Invocations by rank with the fitted line, both axes logarithmic."""
    ranks = found["ranks"]
    if len(ranks) < 2:
        return ""
    seen = tuple(Point(x=one["rank"], y=one["invocations"]) for one in ranks)
    line = tuple(Point(x=one["rank"], y=one["fitted"]) for one in ranks)
    return line_chart(
        [
            Line(name="tools", style="c0", points=seen, dots="seen"),
            Line(name="fitted", style="c1 again", points=(line[0], line[-1]), dots="none"),
        ],
        x_name="rank",
        y_name="invocations",
        log=True,
        log_x=True,
    )


def _bar(classes: Sequence[Mapping[str, Any]]) -> str:
    """Invocations of the classes as one bar; a class keeps its colour."""
    total = sum(one["invocations"] for one in classes)
    parts = [
        Part(
            name=one["name"],
            style=_style(place),
            value=float(one["invocations"]),
            text=f"{one['invocations'] / total:.1%}",
        )
        for place, one in enumerate(classes)
        if one["invocations"]
    ]
    return stacked_bar(parts) if parts else ""


def _style(place: int) -> str:
    return f"c{min(place, COLOURS - 1)}"
