"""The ladder's table for a terminal, from the figures of ablate.json. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from console.ablate.results.statistics import Against
from console.ablate.standing import RungState
from toolwright.page.text import plain

NONE = "-"
GAP = "  "
LESS = f"{GAP}less base"


def table(data: Mapping[str, Any]) -> list[str]:
    """A row and its difference to the base for each variation, then what ended otherwise than
    well and what is to be known. Every line is one line."""
    columns = [one for one in data["measures"] if one["main"]]
    rows: list[list[str]] = [["", "runs", *(one["title"] for one in columns)]]
    for row in data["rows"]:
        rows.append(_means(row, columns))
        if row["differences"]:
            rows.append(_differences(row, columns))
    lines = [*_aligned(rows), "", *legend(data), *_endings(data), *_remarks(data)]
    return [plain(line, "") for line in lines]


def number(value: float | None, form: str, *, signed: bool = False) -> str:
    """As table and page write it."""
    if value is None:
        return NONE
    sign = "+" if signed else ""
    if form == "steps":
        return f"{value:{sign}.1f}"
    # A reward need not lie between 0 and 1.
    return f"{value:{sign}.3f}" if abs(value) < 1000 else f"{value:{sign}.4g}"


def mean(of: Mapping[str, Any] | None, form: str) -> str:
    """A mean with its error; how many runs have a value, where that is not all."""
    if not of or not of["of"]:
        return NONE
    if of["mean"] is None:
        return f"{of['n']} of {of['of']} runs" if form == "steps" else NONE
    lacks = f" ({of['n']} of {of['of']})" if of["n"] < of["of"] else ""
    return f"{number(of['mean'], form)}{_error(of, form)}{lacks}"


def difference(of: Mapping[str, Any], form: str) -> str:
    """A difference with its error, and what it is."""
    if of["mean"] is None:
        return str(of["against"])
    return f"{number(of['mean'], form, signed=True)}{_error(of, form)} {of['against']}"


def ended(run: Mapping[str, Any]) -> str:
    """What became of a run."""
    status = f" (status {run['status']})" if run["status"] else ""
    why = f": {run['sentence']}" if run["sentence"] else ""
    return f"{run['word']}{status}{why}"


def legend(data: Mapping[str, Any]) -> list[str]:
    """What the numbers are, a sentence each."""
    seeds = len(data["seeds"])
    by = f", by the part {data['by']!r} of the reward" if data["by"] else ""
    found = [
        f"{data['steps']} steps, seeds {', '.join(map(str, data['seeds']))}{by}. ± is one standard "
        f"error over seeds.",
        f"A difference is that of runs with the same seed. {Against.NOISE}: chance alone gives as "
        "much in more than one of 20 such comparisons (Student's t; for held-out scores also the "
        "error over their questions).",
    ]
    if seeds == 1:
        found.append("One seed tells nothing of noise: --seeds 3 is the least that does.")
    used = {one["against"] for row in data["rows"] for one in row["differences"].values()}
    if Against.INCOMPLETE in used:
        found.append(f"{Against.INCOMPLETE}: not judged, since runs or measurements are missing.")
    return found


def _means(row: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]) -> list[str]:
    done = sum(run["word"] == RungState.DONE for run in row["runs"])
    cells = [mean(row["means"][one["key"]], one["form"]) for one in columns]
    return [row["name"], f"{done}/{len(row['runs'])}", *cells]


def _differences(row: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [difference(row["differences"][one["key"]], one["form"]) for one in columns]
    return [LESS, "", *cells]


def _endings(data: Mapping[str, Any]) -> Iterator[str]:
    for row in data["rows"]:
        for run in row["runs"]:
            if run["word"] != RungState.DONE or run["status"]:
                first = ended(run).splitlines()[0]
                yield f"{row['name']}, seed {run['seed']}: {first}"


def _remarks(data: Mapping[str, Any]) -> Iterator[str]:
    for row in data["rows"]:
        for remark in row["remarks"]:
            yield f"{row['name']}: {remark}"


def _error(of: Mapping[str, Any], form: str) -> str:
    return "" if of["stderr"] is None else f" ±{number(of['stderr'], form)}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        yield GAP.join(cells).rstrip()
