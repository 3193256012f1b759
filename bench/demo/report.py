"""report.html: one file that needs nothing else, no network either.

Turns an outcome into what the page shows; the page itself is page.html.jinja, where everything
that a process wrote is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bench import charts, pages
from bench.charts import Line, Part, Point
from bench.demo import breakdown
from bench.demo.breakdown import Share
from bench.demo.progress import duration
from bench.demo.summary import over_seeds, rows
from bench.demo.transcript import before_and_after, question
from bench.demo.types import Comparison, Evaluation, Outcome, Sample, Trained

REWARD_WINDOW = 5  # steps that the reward's line is a mean of
STAGES = {
    "servers_start": "sampler and tools ready (while the first warm-up runs)",
    "warm_up": "warm-up: demonstrations, imitation",
    "training": "reinforcement learning, with the evaluations on the way",
    "control": "control, learning rate 0",
    "last_evaluation": "evaluation of the last version",
    "total": "everything",
}


def write_report(outcome: Outcome, path: Path) -> None:
    path.write_text(render(outcome))


def render(outcome: Outcome) -> str:
    """The whole page."""
    return pages.render("demo/page.html.jinja", _content(outcome))


def _content(outcome: Outcome) -> dict[str, Any]:
    subject = outcome.subject
    main = over_seeds(outcome, subject.main.name)
    first = outcome.runs[0]
    return {
        "headline": (
            f"{subject.headline} rose from {main.sampled_before.value:.0%} "
            f"to {main.sampled_after.value:.0%}"
        ),
        "subject": subject,
        "figures": [{"after": main.sampled_after.value}],
        "started": outcome.started,
        "tiles": _tiles(outcome, main),
        "rows": list(_rows(outcome)),
        "curve": Markup(_curve(outcome)),
        "legend": _legend(outcome),
        "evaluations": list(_evaluations(outcome)),
        "breakdowns": [
            _breakdown("One trajectory", breakdown.of_trajectory(first.record)),
            _breakdown("One training step", breakdown.of_step(first.record)),
        ],
        "seconds": [
            (name, f"{outcome.seconds[key]:.0f} s")
            for key, name in STAGES.items()
            if key in outcome.seconds
        ],
        "samples": _samples(first, subject.main.name),
        "processes": outcome.processes,
        "versions": list(outcome.versions.items()),
        "recipe": outcome.settings["recipe"],
        "overrides": list(outcome.settings["overrides"].items()),
    }


def _tiles(outcome: Outcome, main: Comparison) -> list[dict[str, str]]:
    first = outcome.runs[0]
    speeds = [s.tokens_per_second for s in first.record.steps if s.tokens_per_second]
    gaps = [s.values["gap_max"] for r in outcome.runs for s in r.record.steps
            if "gap_max" in s.values]  # fmt: skip
    tiles = [
        (
            f"{main.sampled_before.value:.3f} → {main.sampled_after.value:.3f}",
            "sampled, T = 1",
        ),
        (f"{main.greedy_before.value:.3f} → {main.greedy_after.value:.3f}", "greedy"),
        (duration(outcome.seconds["total"]), f"in all, {outcome.versions.get('cores', '?')} cores"),
        (f"{outcome.peak_memory / 2**30:.1f} GiB", "peak memory of all processes (PSS)"),
    ]
    if speeds:
        tiles.append((f"{sum(speeds) / len(speeds):,.0f}", "policy tokens/s, training included"))
    if gaps:
        tiles.append((f"{max(gaps):.1e}", "largest |log-prob difference| of sampler and learner"))
    return [{"value": value, "name": name} for value, name in tiles]


def _rows(outcome: Outcome) -> Iterable[dict[str, Any]]:
    result = 0 if len(outcome.runs) == 1 else len(outcome.runs)  # the mean follows the seeds
    for number, (name, comparison) in enumerate(rows(outcome)):
        yield _row(name, comparison, main=number == result)


def _row(name: str, c: Comparison, *, main: bool) -> dict[str, Any]:
    scores = (c.sampled_before, c.sampled_after, c.greedy_before, c.greedy_after)
    return {"name": name, "n": c.n, "scores": scores, "main": main}


def _curve(outcome: Outcome) -> str:
    last = outcome.runs[0].last_step
    main = outcome.subject.main
    before = over_seeds(outcome, main.name).sampled_before.value
    lines = [
        Line(name="baseline", style="baseline",
             points=(Point(x=0, y=before), Point(x=last, y=before)))
    ]  # fmt: skip
    for run in outcome.runs:
        rewards = charts.smooth([step.reward for step in run.record.steps], REWARD_WINDOW)
        points = tuple(
            Point(x=step.step, y=y) for step, y in zip(run.record.steps, rewards, strict=True)
        )
        lines.append(Line(name=f"reward, seed {run.seed}", style="reward", points=points))
    lines += [
        _evaluated(run, main.name, how, f"{how}, seed {run.seed}", how)
        for run in outcome.runs
        for how in ("greedy", "sampled")
    ]
    if outcome.control:
        lines.append(
            _evaluated(outcome.control, main.name, "sampled", "control, sampled", "control")
        )
    return charts.line_chart(lines, last=last, x_name="training step", y_name="success")


def _evaluated(run: Trained, suite: str, how: str, name: str, style: str) -> Line:
    """The curve's questions on the way, and the many of `suite` at both ends."""
    ends = {e.step: e for e in run.record.curve(f"{suite}-{how}")}
    found = {e.step: e for e in run.record.curve(f"curve-{how}")} | ends
    points = tuple(Point(x=s, y=found[s].success, error=found[s].stderr) for s in sorted(found))
    return Line(name=name, style=style, points=points, dots=True)


def _legend(outcome: Outcome) -> list[dict[str, str]]:
    several = " (each seed)" if len(outcome.runs) > 1 else ""
    entries = [
        ("sampled", f"{outcome.subject.main.title}, sampled at T = 1{several}"),
        ("greedy", f"{outcome.subject.main.title}, greedy{several}"),
        ("reward", f"training reward, mean of {REWARD_WINDOW} steps{several}"),
        ("baseline", "sampled, before"),
    ]
    if outcome.control:
        entries.append(("control", "control: learning rate 0"))
    return [{"style": style, "name": name} for style, name in entries]


def _evaluations(outcome: Outcome) -> Iterable[dict[str, Any]]:
    for run in (*outcome.runs, *([outcome.control] if outcome.control else [])):
        name = "control" if run.control else f"seed {run.seed}"
        for e in run.record.evaluations:
            yield {"run": name, **_fields(e)}


def _fields(e: Evaluation) -> dict[str, Any]:
    return {"step": e.step, "suite": e.suite, "n": e.n, "success": e.success, "stderr": e.stderr}


def _breakdown(title: str, shares: Sequence[Share]) -> dict[str, Any]:
    parts = [
        Part(name=share.name, style=f"p{number}", value=share.seconds, text=_short(share.seconds))
        for number, share in enumerate(shares)
    ]
    whole = sum(share.seconds for share in shares)
    return {
        "title": f"{title}: {_short(whole)}",
        "bar": Markup(charts.stacked_bar(parts)),
        "parts": [
            {"name": part.name, "style": part.style, "text": part.text, "what": share.what}
            for part, share in zip(parts, shares, strict=True)
        ],
    }


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _samples(run: Trained, suite: str) -> list[dict[str, Any]]:
    before, after = before_and_after(run, suite)
    return [
        {"title": "Before: after the warm-up", "samples": [_sample(s) for s in before]},
        {"title": f"After {run.last_step} steps", "samples": [_sample(s) for s in after]},
    ]


def _sample(sample: Sample) -> dict[str, Any]:
    prompt = "".join(text for author, text in sample.segments if author == "prompt")
    right = sample.reward > 0
    return {
        "question": question(prompt),
        "segments": [(a, text) for a, text in sample.segments if a != "prompt"],
        "right": right,
        "verdict": "right" if right else f"wrong: it is {' or '.join(sample.answers)}",
    }
