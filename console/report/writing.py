"""Writes a report: report.html and summary.json beside it, of one run or several."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.atomic import put
from console.errors import ConsoleError
from console.record.run import read_runs
from console.report.figures import figures
from console.verdict import Verdict
from console.web.files import file_of
from toolwright.page.text import plain
from toolwright.text.figures import compact

SUMMARY = "summary.json"
REPORT = "report.html"
"""Files of a single run's report."""
_INDENT = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """What was written, and what it came to. lines: the figures for a terminal, the headline first.
    remarks: what could not be read, a sentence each."""

    report: Path
    summary: Path
    verdict: str
    lines: tuple[str, ...]
    remarks: tuple[str, ...]


def write(runs: Sequence[Path], output: Path) -> Paths:
    """Writes the page to `output`, and summary.json beside it. Older files are replaced, each
    atomically. Raises RecordBroken for a folder without a run, and ConsoleError if a file cannot be
    written."""
    found = read_runs(runs)
    if not output.parent.is_dir():
        raise ConsoleError(
            f"{output.parent} is no folder, the report cannot be written there: make it, or name "
            "another place with --output"
        )
    data = figures(found, output=output)
    summary = output.parent / SUMMARY
    # The page shows what the file holds: what JSON cannot keep is lost before it is shown.
    data = json.loads(text := dumps(data))
    page = file_of("report", data["headline"], data)
    try:
        put(summary, text)
        put(output, page)
    except OSError as error:
        raise ConsoleError(
            f"{error.filename or output} cannot be written: {error.strerror}; make room, or name "
            "another place with --output"
        ) from error
    return Paths(
        report=output.resolve(),
        summary=summary.resolve(),
        verdict=data["verdict"],
        lines=tuple(table(data)),
        remarks=tuple(map(plain, data["remarks"])),
    )


def dumps(value: Any) -> str:
    """JSON, indented; a list of numbers is one line."""
    return "".join(_parts(value, "")) + "\n"


def table(data: dict[str, Any]) -> list[str]:
    """The headline, and of each suite what it was before and after."""
    rows = [
        (suite["title"], way, suite[way])
        for suite in data["suites"].values()
        for way in ("sampled", "greedy")
        if suite.get(way)
    ]
    width = max((len(title) for title, _, _ in rows), default=0)
    lines = [data["headline"]]
    if data["verdict"] in (Verdict.NOTHING, Verdict.COLLAPSED, Verdict.TOO_EARLY):
        lines.append(data["why"])
    for title, way, found in rows:
        after = f" -> {_score(found['after'])}" if found["after"] else ""
        lines.append(
            f"{title:{width}}  {way:7}  n = {found['n']}  {_score(found['before'])}{after}"
        )
    return [plain(line, "") for line in lines]


def _score(score: dict[str, float]) -> str:
    return f"{compact(score['mean'])} ±{compact(score['stderr'])}"


def _parts(value: Any, indent: str) -> Iterator[str]:
    inner = indent + _INDENT
    if isinstance(value, dict) and value:
        yield "{"
        for number, (key, of) in enumerate(value.items()):
            yield f"{',' if number else ''}\n{inner}{json.dumps(str(key))}: "
            yield from _parts(of, inner)
        yield f"\n{indent}}}"
    elif isinstance(value, list) and any(isinstance(of, list | dict) for of in value):
        yield "["
        for number, of in enumerate(value):
            yield f"{',' if number else ''}\n{inner}"
            yield from _parts(of, inner)
        yield f"\n{indent}]"
    else:
        yield json.dumps(value, allow_nan=False)
