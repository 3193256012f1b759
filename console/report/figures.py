"""Every figure of a report, as the plain data that summary.json holds and the page draws.

The page shows nothing else. What a run did not leave is absent or None. Pages are handed on:
commands, settings and sentences pass `console.redact`, and keep names and paths, since the commands
are to work.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from console.record.changes import sentences
from console.record.files import MEMORY_PAGE
from console.record.restarts import tool_restarts
from console.record.run import RunFiles
from console.record.types import WAYS, Evaluation, Sample
from console.redact import redactor
from console.report import breakdown
from console.report.commands import commands, processes
from console.report.headline import are_shares, headline, judge_all, judge_run, questions
from console.report.sections import sections, words_of
from console.report.suites import Change, NamedSuite, change, mean, named_suites, shown_suites
from console.report.transcript import before_and_after, segments, verdict
from console.verdict import Judgement, Score, shown_error
from console.watch.doubts import of_calls, of_rollouts
from toolwright.page.plot import MOST_POINTS
from toolwright.text.figures import restarted

MOST_EVALUATIONS = 2000
"""Rows of the table; all are in evaluations.jsonl."""


def figures(runs: Sequence[RunFiles], *, output: Path) -> dict[str, Any]:
    """All figures of a report: `words_and_numbers`, and every plot. runs: in the report's order.
    output: the report's file."""
    return words_and_numbers(runs, output=output) | {
        "sections": sections(runs, most=MOST_POINTS, others=False)
    }


def words_and_numbers(runs: Sequence[RunFiles], *, output: Path) -> dict[str, Any]:
    """What the figures are but for the plots, which take the longest of a long run."""
    clean = redactor(names=False)
    words = words_of(runs)
    named = shown_suites(named_suites(runs), words)
    main = named[0] if named else None
    judgement = judge_all(runs, main)
    learnt = [run for run in runs if not run.resolved.control] or list(runs)
    first = learnt[0]
    return {
        "headline": headline(
            judgement,
            main,
            words,
            shares=are_shares(runs),
            questions=questions(runs, judgement),
        ),
        **_judgement(judgement),
        "about": {"lead": words.lead, "before": words.before, "note": words.note},
        "main": main.name if main else None,
        "suites": {one.name: _suite(one, learnt) for one in named},
        "rows": _rows(runs, named),
        "runs": [_run(run, named, main) for run in runs],
        "tiles": _tiles(runs, learnt, main),
        "evaluations": _evaluations(runs),
        "breakdowns": _breakdowns(first),
        "stages": _stages(runs),
        "samples": _samples(first, main),
        "pages": _pages(runs, output),
        "commands": commands(runs, output, clean),
        "processes": processes(runs, clean),
        "versions": dict(first.course.starts[-1].versions) if first.course.starts else {},
        "settings": {"recipe": first.resolved.recipe, "values": clean.table(first.resolved.flat)},
        "started": _day(min((run.began for run in runs if run.began), default=None)),
        "doubts": [
            clean.text(f"{run.name}: {doubt}" if len(runs) > 1 else doubt)
            for run in runs
            for doubt in _doubts(run)
        ],
        "remarks": [clean.text(f"{run.name}: {line}") for run in runs for line in remarks_of(run)],
    }


def _doubts(run: RunFiles) -> list[str]:
    steps = run.record.steps
    last = of_rollouts(steps[-1], run.resolved.text("task.reward")) if steps else []
    ended = restarted(tool_restarts(run.folder))
    return [*of_calls(steps), *last, *([ended] if ended else []), *sentences(run.course)]


def _pages(runs: Sequence[RunFiles], output: Path) -> list[dict[str, str]]:
    """Pages beside a run's files: {"what", "file"}, the file as the report's folder names it."""
    several = len(runs) > 1
    return [
        {
            "what": f"{run.name}: the tool memory" if several else "the tool memory",
            "file": os.path.relpath(run.folder / MEMORY_PAGE, output.resolve().parent),
        }
        for run in runs
        if (run.folder / MEMORY_PAGE).is_file()
    ]


def score(one: Score | None) -> dict[str, float] | None:
    return None if one is None else {"mean": round(one.mean, 6), "stderr": round(one.stderr, 6)}


def _judgement(one: Judgement) -> dict[str, Any]:
    return {
        "verdict": str(one.verdict),
        "why": one.why,
        "by": one.by,
        "before": score(one.before),
        "after": score(one.after),
    }


def change_of(evaluations: Sequence[Evaluation]) -> dict[str, Any] | None:
    """The first and the last measurement of a suite; None without any."""
    return _change(change(evaluations))


def _change(one: Change | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "n": one.n,
        "before": score(one.before),
        "after": score(one.after),
        "steps": list(one.steps),
    }


def _suite(named: NamedSuite, runs: Sequence[RunFiles]) -> dict[str, Any]:
    """Means over the runs that measured it."""
    found: dict[str, Any] = {"title": named.title}
    for way, suite in named.ways.items():
        changes = [one for run in runs if (one := change(run.record.curve(suite))) is not None]
        found[way] = _change(mean(changes))
    found["n"] = max((found[way]["n"] for way in named.ways if found[way]), default=0)
    return found


def _rows(runs: Sequence[RunFiles], named: Sequence[NamedSuite]) -> list[dict[str, Any]]:
    """Rows of the table: each run by the suite that counts, controls last; the mean of the others;
    the means of the other suites. `at` is the path of the row's figures in the summary."""
    if not named:
        return []
    main, *others = named
    several = sum(not run.resolved.control for run in runs) > 1
    rows: list[dict[str, Any]] = []

    def row(name: str, at: list[str | int], suites: Sequence[str], of: Sequence[RunFiles]) -> None:
        if any(run.record.curve(suite) for run in of for suite in suites):
            rows.append({"name": name, "at": at, "main": not rows and not several})

    ways = tuple(main.ways.values())
    for control in (False, True):
        of = [(n, run) for n, run in enumerate(runs) if run.resolved.control is control]
        for number, run in of:
            what = ", control: learning rate 0" if control else ""
            which = f", {run.name}" if len(runs) > 1 else ""
            row(f"{main.title}{what}{which}", ["runs", number, "suites", main.name], ways, [run])
        if several and not control:
            name = f"{main.title}, mean of {len(of)} runs"
            row(name, ["suites", main.name], ways, [run for _, run in of])
            rows[-1]["main"] = True
    for one in others:
        row(one.title, ["suites", one.name], tuple(one.ways.values()), runs)
    return rows


def _run(run: RunFiles, named: Sequence[NamedSuite], main: NamedSuite | None) -> dict[str, Any]:
    return {
        "name": run.name,
        "folder": str(run.folder),
        "seed": run.resolved.whole("run.seed"),
        "control": run.resolved.control,
        "steps": run.steps,
        "planned": run.planned,
        "ended": None if run.course.ended is None else run.course.ended.status,
        **_judgement(judge_run(run, main)),
        "suites": {one.name: _suite(one, [run]) for one in named},
    }


def _tiles(
    runs: Sequence[RunFiles], learnt: Sequence[RunFiles], main: NamedSuite | None
) -> list[dict[str, Any]]:
    """name, form and value, or `values` of a pair."""
    tiles: list[dict[str, Any]] = []
    for way in WAYS if main is not None else ():
        assert main is not None
        found = [change(run.record.curve(main.ways[way])) for run in learnt if way in main.ways]
        over = mean([one for one in found if one is not None])
        if over is not None and over.after is not None:
            pair = [round(over.before.mean, 6), round(over.after.mean, 6)]
            tiles.append({"name": f"{main.title}, {way}", "form": "score", "values": pair})
        elif over is not None:
            value = round(over.before.mean, 6)
            tiles.append({"name": f"{main.title}, {way}", "form": "score", "value": value})

    def tile(name: str, form: str, value: float | None) -> None:
        if value is not None:
            tiles.append({"name": name, "form": form, "value": value})

    steps = [step for run in learnt for step in run.record.steps]
    tile(
        "steps" if len(learnt) == 1 else "steps of all runs", "count", sum(r.steps for r in learnt)
    )
    seconds = [total for run in runs if (total := _seconds(run)) is not None]
    # Between two starts nothing ran, and a killed one ends with its last line.
    whole = all(len(run.course.starts) < 2 for run in runs)
    name = "from the first start to the end" if whole else "of all starts, pauses left out"
    tile(name, "duration", sum(seconds) if seconds else None)
    peak = max(run.course.peak_memory for run in runs)
    tile("peak memory of all processes (PSS)", "bytes", peak or None)
    speeds = [speed for step in steps if (speed := step.tokens_per_second) is not None]
    tile("policy tokens/s, training included", "count", fmean(speeds) if speeds else None)
    gaps = [step.values["gap_max"] for step in steps if "gap_max" in step.values]
    tile("largest |log-prob difference|, sampler and learner", "small", max(gaps, default=None))
    calls = [step.values["calls"] for step in steps if "calls" in step.values]
    tile("tool calls a trajectory", "mean", fmean(calls) if calls else None)
    return tiles


def _seconds(run: RunFiles) -> float | None:
    """Duration of a run: the stages of all its starts, else from the first to the last event."""
    if run.course.stages:
        return round(sum(stage.seconds for stage in run.course.stages), 1)
    return round(run.last - run.began, 1) if run.began and run.last else None


def _evaluations(runs: Sequence[RunFiles]) -> list[dict[str, Any]]:
    rows = [
        {
            "run": run.name,
            "step": e.step,
            "suite": e.suite,
            "n": e.n,
            "mean": round(e.reward, 6),
            "stderr": None if (error := shown_error(e)) is None else round(error, 6),
        }
        for run in runs
        for e in run.record.evaluations
    ]
    return rows[-MOST_EVALUATIONS:]


def _breakdowns(run: RunFiles) -> list[dict[str, Any]]:
    found = (
        ("One trajectory", breakdown.of_trajectory(run.record)),
        ("One training step", breakdown.of_step(run.record)),
    )
    return [
        {
            "title": title,
            "seconds": round(sum(share.seconds for share in shares), 6),
            "parts": [
                {"name": share.name, "what": share.what, "seconds": round(share.seconds, 6)}
                for share in shares
            ],
        }
        for title, shares in found
        if sum(share.seconds for share in shares) > 0
    ]


def _stages(runs: Sequence[RunFiles]) -> list[dict[str, Any]]:
    """Seconds of each stage over all starts; without a console's log those that metrics tell."""
    found: dict[str, float] = {}
    for run in runs:
        for stage in run.course.stages:
            found[stage.text] = found.get(stage.text, 0.0) + stage.seconds
    if not found:
        for name, steps in (
            ("imitation, steps alone", [s for run in runs for s in run.record.imitation]),
            ("training, steps alone", [s for run in runs for s in run.record.steps]),
        ):
            if steps:
                found[name] = sum(step.values.get("step_s", 0.0) for step in steps)
    return [{"name": name, "seconds": round(seconds, 1)} for name, seconds in found.items()]


def _samples(run: RunFiles, main: NamedSuite | None) -> list[dict[str, Any]]:
    return [
        {
            "step": samples[0].step,
            "suite": samples[0].suite,
            "samples": [_sample(sample) for sample in samples],
        }
        for samples in before_and_after(run.record, main)
        if samples
    ]


def _sample(sample: Sample) -> dict[str, Any]:
    """One trajectory for reading; the question is in front of the other segments."""
    whole = segments(sample)
    asked = whole[0][1] if whole and whole[0][0] == "prompt" else ""
    return {
        "index": sample.index,
        "reward": sample.reward,
        "verdict": verdict(sample),
        "question": asked,
        "segments": [list(one) for one in (whole[1:] if asked else whole)],
    }


def remarks_of(run: RunFiles) -> list[str]:
    """What could not be read of it, and what it did not come to, a sentence each."""
    found = list(run.remarks)
    if run.planned is not None and run.steps < run.planned:
        found.append(f"{run.steps} of {run.planned} steps are made")
    ended = run.course.ended
    if ended is not None and ended.status:
        reason = run.record.steps[-1].worthless if run.record.steps else ""
        said = reason and reason in ended.sentence  # beside the verdict already
        found.append(f"ended with status {ended.status}" + ("" if said else f": {ended.sentence}"))
    for suite in run.record.suites:
        counts = [e.n for e in run.record.curve(suite)]
        if len(set(counts)) > 1:
            found.append(f"{suite} was asked {counts[0]} questions first and {counts[-1]} last")
    if not run.record.evaluations and run.record.steps:
        found.append("no suite was evaluated")
    return found


def _day(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
