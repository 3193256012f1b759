"""Prints what became of every repository in a run: solved or not, calls, seconds, why it ended.

    python -m toolwright.script world/table.py run

Reads evaluations/SUITE@VERSION.jsonl of the run's folder, also while the run goes on; `engine eval`
leaves the same files in its folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

Row = Mapping[str, Any]
HEADINGS = ("agent", "task", "solved", "tests", "tampered", "calls", "seconds", "ended")


class NoRows(ValueError):
    """The message says the fix."""


def read(run: Path) -> dict[str, list[Row]]:
    """The rows of each suite, in the order of its tasks. Raises NoRows."""
    found: dict[str, list[Row]] = {}
    for file in sorted((run / "evaluations").glob("*.jsonl")):
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        found[file.name.partition("@")[0]] = sorted(rows, key=lambda row: int(row["index"]))
    if not any(found.values()):
        raise NoRows(
            f"{run} has no evaluated tasks: name the folder of a run, such as runs/.../seed-1"
        )
    return found


def table(suites: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """A line a task, and one a suite."""
    lines: list[tuple[str, ...]] = [HEADINGS]
    for suite, rows in suites.items():
        lines += [_line(suite, row) for row in rows]
        lines += [_sum(suite, [row for row in rows if "reward" in row])]
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEADINGS))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _line(suite: str, row: Row) -> tuple[str, ...]:
    if "reward" not in row:
        return (suite, str(row["task_id"]), "?", "", "", "", "", str(row.get("bad", "")))
    parts = row["parts"]
    return (
        suite,
        str(row["task_id"]),
        "yes" if row["reward"] == 1 else "no",
        f"{parts['tests_passed']:.0f} of {parts['tests_wanted']:.0f}"
        if parts["submitted"]
        else "-",
        f"{parts['tampered_files']:.0f}" if parts["tampered_files"] else "",
        str(row["calls"]),
        f"{row['seconds']:.1f}",
        str(row["errored"] or row["stop_reason"]),
    )


def _sum(suite: str, rows: Sequence[Row]) -> tuple[str, ...]:
    if not rows:
        return (suite, "all", "0 of 0", *[""] * 5)
    solved = sum(row["reward"] == 1 for row in rows)
    calls, seconds = (fmean(row[name] for row in rows) for name in ("calls", "seconds"))
    means = (f"{calls:.1f}", f"{seconds:.1f}")
    return (suite, "all", f"{solved} of {len(rows)}", "", "", *means, "")


def main(run: Annotated[Path, "the run's folder"]) -> None:
    """Print what became of every repository of a run."""
    try:
        for line in table(read(run)):
            print(line)
    except NoRows as error:
        sys.exit(f"table.py: {error}")
