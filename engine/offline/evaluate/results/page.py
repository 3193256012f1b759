"""page.html: the results in one file that needs neither other files nor a network.

It shows the data of results.json and a few trajectories of samples.jsonl. Text of policies, tools
and data sets is escaped, and cut where it is long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from engine.offline.evaluate.results.table import missing, score, shown, warnings
from engine.offline.text_table import NONE, rate
from engine.serving.json_lines import JsonLines
from toolwright.page import pages
from toolwright.page.charts import Line, Part, Point, line_chart, stacked_bar
from toolwright.page.text import fit

MOST_TRAJECTORIES = 6
LONGEST_SEGMENT = 3000
"""Longest text of a segment, in characters."""
MOST_STOPS = 8
"""Most stop reasons of a bar: the style sheet has so many colours."""
LONGEST_NAME = 14
"""Longest name of a set below a chart, in characters."""
AUTHORS = ("prompt", "model", "tool", "memory", "template", "system")


def page(found: Mapping[str, Any], folder: Path, sections: Sequence[str] = ()) -> str:
    """The page of `figures.results`. sections: HTML after the scores."""
    content = {
        "data": found,
        "title": f"{found['name']}: {_headline(found)}",
        "tiles": _tiles(found),
        "chart": Markup(_chart(found)),
        "bars": [(one["name"], Markup(_bar(one))) for one in found["sets"] if one["stops"]],
        "missing": [*missing(found), *warnings(found)],
        "sections": [Markup(one) for one in sections],
        "traces": _trajectories(folder, found["version"]),
        "score": score,
        "rate": rate,
        "shown": shown,
        "none": NONE,
        "fit": fit,
    }
    return pages.render("engine", "offline/evaluate/results/page.html.jinja", content)


def _headline(found: Mapping[str, Any]) -> str:
    sets, average = found["sets"], found["average"]
    if average:
        text = score(average["score"], average["standard_error"])
        return f"{text} on average over {average['sets']} sets"
    if len(sets) == 1:
        return score(sets[0]["score"], sets[0]["standard_error"])
    return f"{len(sets)} sets"


def _tiles(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    total = found["total"]
    rows = total["rows"] or 1
    tiles = [
        (f"{total['questions']:,}", "questions with a score"),
        (f"{total['calls'] / rows:.2f}", "tool calls a question"),
        (f"{total['input_tokens'] / rows:,.0f}", "tokens read a question"),
        (f"{total['output_tokens'] / rows:,.0f}", "tokens written a question"),
        (f"{total['seconds'] / rows:.2f} s", "a question"),
    ]
    if total["cost"] is not None:
        tiles.append((f"{total['cost']:.4g}", "cost, at the prices given"))
    return tiles


def _chart(found: Mapping[str, Any]) -> str:
    """Scores with their errors, a place a set."""
    scored = [one for one in found["sets"] if one["score"] is not None]
    if len(scored) < 2:
        return ""
    points = tuple(
        Point(
            x=float(place),
            y=one["score"],
            error=one["standard_error"] or 0.0,
            says=f"{one['name']}: {score(one['score'], one['standard_error'])}",
        )
        for place, one in enumerate(scored)
    )
    # A line a point: sets are in no order that a curve could follow.
    lines = [
        Line(name=one["name"], style="c0", points=(point,), dots="seen")
        for one, point in zip(scored, points, strict=True)
    ]
    return line_chart(
        lines,
        x_name="set",
        y_name=found["score"],
        low=min(0.0, *(p.y - p.error for p in points)),
        first=-0.5,
        last=len(scored) - 0.5,
        labels=[_cut(one["name"], LONGEST_NAME) for one in scored],
    )


def _bar(one: Mapping[str, Any]) -> str:
    """Why the rows of a set ended."""
    rows = one["measured_rows"]
    counts = list(one["stops"].items())
    rest = sum(count for _, count in counts[MOST_STOPS - 1 :])
    if len(counts) > MOST_STOPS:
        counts = [*counts[: MOST_STOPS - 1], ("others", rest)]
    return stacked_bar(
        [
            Part(name=reason, style=f"c{place}", value=float(count), text=f"{count / rows:.1%}")
            for place, (reason, count) in enumerate(counts)
        ]
    )


def _trajectories(folder: Path, version: str) -> list[dict[str, Any]]:
    """The first trajectories of the suites in turn, each as it was written last."""
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    for line in JsonLines(folder / "samples.jsonl").read():
        index = line.get("index")
        if isinstance(index, int) and f"{line.get('lineage')}.{line.get('step')}" == version:
            found[str(line.get("suite")), index] = line
    ordered = sorted(found, key=lambda key: (key[1], key[0]))[:MOST_TRAJECTORIES]
    return [_trace(found[key]) for key in ordered]


def _trace(line: Mapping[str, Any]) -> dict[str, Any]:
    segments = [
        (str(one.get("author")), str(one.get("text")))
        for one in _list(line.get("segments"))
        if isinstance(one, Mapping)
    ]
    answers = ", ".join(map(str, _list(line.get("answers"))))
    return {
        "name": f"{line.get('suite')}, {line.get('task_id')}",
        "segments": [
            (author if author in AUTHORS else "other", _cut(text, LONGEST_SEGMENT))
            for author, text in segments
        ],
        "verdict": f"reward {line.get('reward')}, {line.get('stop_reason')}"
        + (f"; right: {_cut(answers, LONGEST_SEGMENT)}" if answers else ""),
    }


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]} ..."
