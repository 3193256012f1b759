"""What became of each mutant: kept as JSON from run to run, and written as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from tests.mutants.table import TABLE, Equivalent, Planted
from tests.mutants.trial import Caught

JSON = TABLE.with_name("results.json")
PAGE = TABLE.with_name("results.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """tests, simulator: None where the mutant did not run against them."""

    tests: Caught | None = None
    simulator: Caught | None = None


Results = dict[str, Result]
"""By the mutant's name."""


def read_results(planted: Sequence[Planted], file: Path = JSON) -> Results:
    """What earlier runs kept of these bugs as they are now; empty if there is no file."""
    if not file.exists():
        return {}
    found = json.loads(file.read_text(encoding="utf-8"))
    return {
        one.name: Result(
            **{
                key: (row := found[one.name][key]) and Caught(**row)
                for key in ("tests", "simulator")
            }
        )
        for one in planted
        if found.get(one.name, {}).get("bug") == one.digest
    }


def write_results(
    results: Results,
    planted: Sequence[Planted],
    equivalent: Sequence[Equivalent],
    *,
    file: Path = JSON,
    page: Path = PAGE,
) -> None:
    """Both files; mutants that are no longer in the table leave them."""
    kept = {one.name: results[one.name] for one in planted if one.name in results}
    bugs = {one.name: one.digest for one in planted}
    written = {name: {"bug": bugs[name], **asdict(one)} for name, one in kept.items()}
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    temporary.replace(file)
    page.write_text(markdown(kept, planted, equivalent), encoding="utf-8")


def sums(results: Mapping[str, Result], planted: Sequence[Planted]) -> list[str]:
    """The totals, a sentence each."""
    tested = [(one, results[one.name].tests) for one in planted if one.name in results]
    known = [(one, found) for one, found in tested if found is not None]
    lines = [f"Tests catch {_share(found.by for _, found in known)}."]
    for package in sorted({one.package for one, _ in known}):
        share = _share(found.by for one, found in known if one.package == package)
        lines.append(f"Of {package}: {share}.")
    seen = [
        found
        for one in planted
        if one.package == "engine" and one.simulated and one.name in results
        if (found := results[one.name].simulator) is not None
    ]
    if seen:
        every = sum(one.package == "engine" for one in planted)
        lines.append(
            f"The simulator catches {_share(found.by for found in seen)} of the engine's that it "
            f"can show; the engine has {every}."
        )
        seeds = [found.seeds for found in seen if found.by]
        if seeds:
            lines.append(f"Schedules until the violation: median {median(seeds):g}.")
    return lines


def markdown(
    results: Mapping[str, Result], planted: Sequence[Planted], equivalent: Sequence[Equivalent]
) -> str:
    """The page of a run."""
    head = "| mutant | file | breaks | caught by a test | s | caught by the simulator | seeds | s |"
    lines = ["# Planted bugs", "", *sums(results, planted), "", head, "|---" * 8 + "|"]
    for one in planted:
        found = results.get(one.name, Result())
        cells = [
            one.name,
            one.file,
            one.breaks,
            *_cells(found.tests),
            *_cells(found.simulator, seeds=True),
        ]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    lines += ["", "## Equivalent", "", "These behave as the original does.", ""]
    lines += ["| mutant | file | why |", "|---|---|---|"]
    lines += [f"| {one.name} | {one.file} | {one.why} |" for one in equivalent]
    return "\n".join(lines) + "\n"


def _cells(found: Caught | None, *, seeds: bool = False) -> list[str]:
    if found is None:
        return [""] * (3 if seeds else 2)
    counted = [str(found.seeds or "")] if seeds else []
    return [found.by or "no", *counted, f"{found.seconds:.0f}"]


def _share(by: Iterable[str]) -> str:
    found = [bool(one) for one in by]
    percent = 100 * sum(found) / len(found) if found else 0.0
    return f"{sum(found)} of {len(found)} ({percent:.0f} %)"
