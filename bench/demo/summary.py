"""The figures of a demonstration, and summary.json.

Standard errors are those over questions; of a mean over k seeds, sqrt(sum of squares) / k. What
seeds differ by on top of that is seen in the rows of the seeds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.demo.errors import RecordBroken
from bench.demo.types import Comparison, Outcome, Score, Trained


def compare(run: Trained, suites: str) -> Comparison:
    """A run's first and last evaluation of `suites`-sampled and `suites`-greedy.

    RecordBroken when one of the four is missing or they are not over equally many questions.
    """
    found = [
        run.record.at(f"{suites}-{how}", step)
        for how in ("sampled", "greedy")
        for step in (0, run.last_step)
    ]
    present = [evaluation for evaluation in found if evaluation is not None]
    if len(present) < len(found):
        raise RecordBroken(f"seed {run.seed}: {suites} was not evaluated before and after")
    if len({evaluation.n for evaluation in present}) != 1:
        raise RecordBroken(f"seed {run.seed}: {suites} has different questions before and after")
    scores = [Score(value=e.success, stderr=e.stderr) for e in present]
    return Comparison(
        n=present[0].n,
        sampled_before=scores[0],
        sampled_after=scores[1],
        greedy_before=scores[2],
        greedy_after=scores[3],
    )


def mean(comparisons: Sequence[Comparison]) -> Comparison:
    """The mean over seeds."""

    def over(pick: Callable[[Comparison], Score]) -> Score:
        scores = [pick(comparison) for comparison in comparisons]
        return Score(
            value=fmean(score.value for score in scores),
            stderr=math.sqrt(sum(score.stderr**2 for score in scores)) / len(scores),
        )

    return Comparison(
        n=comparisons[0].n,
        sampled_before=over(lambda c: c.sampled_before),
        sampled_after=over(lambda c: c.sampled_after),
        greedy_before=over(lambda c: c.greedy_before),
        greedy_after=over(lambda c: c.greedy_after),
    )


def over_seeds(outcome: Outcome, suites: str) -> Comparison:
    """The mean comparison of all seeds' runs."""
    return mean([compare(run, suites) for run in outcome.runs])


def summary(outcome: Outcome) -> dict[str, Any]:
    """What summary.json holds."""
    control, (main, *others) = outcome.control, outcome.subject.suites
    return {
        main.key: as_json(over_seeds(outcome, main.name)),
        "seeds": [
            {"seed": run.seed, main.key: as_json(compare(run, main.name))} for run in outcome.runs
        ],
        "control": as_json(compare(control, main.name)) if control else None,
        **{suite.key: as_json(over_seeds(outcome, suite.name)) for suite in others},
        "seconds": {name: round(value, 1) for name, value in outcome.seconds.items()},
        "versions": dict(outcome.versions),
    }


def as_json(comparison: Comparison) -> dict[str, Any]:
    """{"n", "sampled": {"before", "after"}, "greedy": {...}, "stderr": the same shape}."""

    def pairs(pick: Callable[[Score], float]) -> dict[str, dict[str, float]]:
        return {
            "sampled": {
                "before": round(pick(comparison.sampled_before), 5),
                "after": round(pick(comparison.sampled_after), 5),
            },
            "greedy": {
                "before": round(pick(comparison.greedy_before), 5),
                "after": round(pick(comparison.greedy_after), 5),
            },
        }

    stderr = pairs(lambda score: score.stderr)
    return {"n": comparison.n, **pairs(lambda score: score.value), "stderr": stderr}


def write_summary(outcome: Outcome, path: Path) -> None:
    path.write_text(json.dumps(summary(outcome), indent=2) + "\n")


def rows(outcome: Outcome) -> list[tuple[str, Comparison]]:
    """What is compared, by name: each seed, their mean, the control, the other suites."""
    main, *others = outcome.subject.suites
    found = [(f"{main.title}, seed {run.seed}", compare(run, main.name)) for run in outcome.runs]
    if len(outcome.runs) > 1:
        found.append((f"{main.title}, mean of seeds", over_seeds(outcome, main.name)))
    if outcome.control:
        found.append(("control, learning rate 0", compare(outcome.control, main.name)))
    return [*found, *((suite.title, over_seeds(outcome, suite.name)) for suite in others)]


def table(outcome: Outcome) -> list[str]:
    """The figures as lines for the terminal."""
    found = rows(outcome)
    width = max(len(name) for name, _ in found) + 2
    lines = [f"{'':{width}}{'n':>5}   {'sampled (T=1)':<31}greedy"]
    for name, c in found:
        sampled = f"{_score(c.sampled_before)} -> {_score(c.sampled_after)}"
        greedy = f"{_score(c.greedy_before)} -> {_score(c.greedy_after)}"
        lines.append(f"{name:{width}}{c.n:>5}   {sampled:<31}{greedy}")
    return lines


def _score(score: Score) -> str:
    return f"{score.value:.3f} ±{score.stderr:.3f}"
