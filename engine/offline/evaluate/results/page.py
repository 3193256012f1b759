"""page.html: the results as one file, by the blocks of `toolwright.page`.

It shows the data of results.json and a few trajectories of samples.jsonl. Texts of policies, tools
and data sets are cut where they are long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from engine.offline.evaluate.results.table import missing, score, shown, warnings
from engine.offline.text_table import rate
from engine.serving.json_lines import JsonLines
from toolwright.page.document import (
    Block,
    Cell,
    bar,
    charts,
    document,
    facts,
    folded,
    heading,
    listed,
    note,
    table,
    trajectory,
)
from toolwright.page.plot import Plot, line, plot

MOST_TRAJECTORIES = 6
LONGEST_SEGMENT = 3000
"""Longest text of a segment, in characters."""
MOST_STOPS = 8
"""Most stop reasons of a bar: the style sheet has so many colours."""
LONGEST_NAME = 14
"""Longest name of a set below a chart, in characters."""
UNFINISHED = "Not every question was asked yet: quick ones may be easy ones."


def page(found: Mapping[str, Any], folder: Path, sections: Sequence[Block | None] = ()) -> str:
    """The page of `figures.results`. sections: blocks after the scores."""
    samples = f"; {found['samples']} samples a question" if found["samples"] > 1 else ""
    doubts = [*([] if found["complete"] else [UNFINISHED]), *missing(found), *warnings(found)]
    bars = [_bar(one) for one in found["sets"] if one["stops"]]
    traces = _trajectories(folder, found["version"])
    blocks = chain(
        (
            note(f"{found['score']}; weights {found['weights']}{samples}"),
            listed(doubts, fault=True),
            facts(_tiles(found)),
            heading("Scores"),
            _scores(found),
            note(
                "± is one standard error over questions; the samples of one question count as one. "
                "Calls, tokens and seconds are means of one trajectory; tokens read are the "
                "prompts of all its actions."
            ),
            charts([_plot(found)]),
        ),
        sections,
        (
            heading("What the reward is made of"),
            table(("set", "part", "mean"), _parts(found)),
            heading("How trajectories ended") if bars else None,
        ),
        bars,
        (heading("Trajectories"), *traces) if traces else (),
        (
            heading("Settings"),
            folded(
                "What every row was measured with",
                (f"{name} = {value}" for name, value in found["settings"].items()),
            ),
            note("Every figure of this page is in results.json beside it."),
        ),
    )
    return document(f"{found['name']}: {_headline(found)}", blocks)


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
        ("questions with a score", f"{total['questions']:,}"),
        ("tool calls a question", f"{total['calls'] / rows:.2f}"),
        ("tokens read a question", f"{total['input_tokens'] / rows:,.0f}"),
        ("tokens written a question", f"{total['output_tokens'] / rows:,.0f}"),
        ("a question", f"{total['seconds'] / rows:.2f} s"),
    ]
    if total["cost"] is not None:
        tiles.append(("cost, at the prices given", f"{total['cost']:.4g}"))
    return tiles


def _scores(found: Mapping[str, Any]) -> Block | None:
    columns = [
        ("questions", "n", ","),
        ("", "", ""),
        ("calls", "calls", ".2f"),
        ("tokens read", "input_tokens", ",.0f"),
        ("written", "output_tokens", ",.0f"),
        ("seconds", "seconds", ".2f"),
        *([("cost", "cost", ".4g")] if found["prices"] else []),
    ]
    rows: list[list[Cell]] = [
        [
            one["name"],
            *(
                shown(one[key], form) if key else score(one["score"], one["standard_error"])
                for _, key, form in columns
            ),
        ]
        for one in found["sets"]
    ]
    if average := found["average"]:
        mean = score(average["score"], average["standard_error"])
        rows.append([{"bold": "average, unweighted"}, "", {"bold": mean}])
    return table(["set", *(name or found["score"] for name, *_ in columns)], rows)


def _parts(found: Mapping[str, Any]) -> Iterator[list[Cell]]:
    for one in found["sets"]:
        means = {**one["parts"], **{f"pass@{k}": part for k, part in one["pass_at"].items()}}
        for name, part in means.items():
            yield [one["name"], name, score(part["mean"], part["standard_error"])]
        for name, of in one["rates"].items():
            yield [one["name"], name, rate(of)]


def _plot(found: Mapping[str, Any]) -> Plot | None:
    """Scores with their errors, a place a set: sets are in no order that a curve could follow."""
    scored = [one for one in found["sets"] if one["score"] is not None]
    if len(scored) < 2:
        return None
    lines = [
        line(one["name"], "c0", [(place, one["score"])], "seen")
        | {"error": [one["standard_error"] or 0.0]}
        for place, one in enumerate(scored)
    ]
    low = min(0.0, *(one["y"][0] - one["error"][0] for one in lines))
    drawn = plot("scores", "Scores", found["score"], lines, low=low)
    labels = [_cut(one["name"], LONGEST_NAME) for one in scored]
    return None if drawn is None else drawn | {"labels": labels, "wide": True}


def _bar(one: Mapping[str, Any]) -> Block | None:
    """Why the rows of a set ended."""
    rows = one["measured_rows"]
    counts = list(one["stops"].items())
    rest = sum(count for _, count in counts[MOST_STOPS - 1 :])
    if len(counts) > MOST_STOPS:
        counts = [*counts[: MOST_STOPS - 1], ("others", rest)]
    return bar(one["name"], ((name, count, f"{count / rows:.1%}") for name, count in counts))


def _trajectories(folder: Path, version: str) -> list[Block]:
    """The first trajectories of the suites in turn, each as it was written last."""
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    for row in JsonLines(folder / "samples.jsonl").read():
        index = row.get("index")
        if isinstance(index, int) and f"{row.get('lineage')}.{row.get('step')}" == version:
            found[str(row.get("suite")), index] = row
    ordered = sorted(found, key=lambda key: (key[1], key[0]))[:MOST_TRAJECTORIES]
    return [_trace(found[key]) for key in ordered]


def _trace(row: Mapping[str, Any]) -> Block:
    segments = [
        (str(one.get("author")), _cut(str(one.get("text")), LONGEST_SEGMENT))
        for one in _list(row.get("segments"))
        if isinstance(one, Mapping)
    ]
    answers = ", ".join(map(str, _list(row.get("answers"))))
    right = f"; right: {_cut(answers, LONGEST_SEGMENT)}" if answers else ""
    verdict = f"reward {row.get('reward')}, {row.get('stop_reason')}{right}"
    return trajectory(f"{row.get('suite')}, {row.get('task_id')}", segments, verdict)


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]} ..."
