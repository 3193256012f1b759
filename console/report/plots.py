"""Which plots a report has, and where their values come from. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from statistics import fmean
from typing import Any

from console.record.run import RunFiles
from console.record.types import WAYS, Step
from console.report.breakdown import REST_OF_STEP, STEP
from console.report.suites import NamedSuite
from console.verdict import shown_error
from toolwright.page.plot import COLOURS, Plot, colour, line, plot, short, smooth

WINDOW = 5
"""Steps that the line of the reward is a mean of."""
MOST_PARTS = 7
"""Parts of the reward, and stop reasons: their names are a stranger's."""
ROUNDING = 1e-9
"""Two means of the same numbers differ by no more."""
Value = Callable[[Step], float | None]


@dataclass(frozen=True, slots=True)
class Metrics:
    """A plot of metrics over the steps: what the page calls each, and where it comes from."""

    key: str
    title: str
    unit: str
    values: Mapping[str, str | Value]
    _: KW_ONLY
    note: str = ""
    log: bool = False
    low: float | None = None
    high: float | None = None


def _signal(step: Step) -> float | None:
    signal, groups = step.values.get("groups_with_signal"), step.values.get("groups")
    return signal / groups if signal is not None and groups else None


def _latency(step: Step) -> float | None:
    seconds, calls = step.values.get("tool_s"), step.values.get("calls")
    return seconds / calls if seconds is not None and calls else None


FRACTION = "share of trajectories"
OF_TOKENS = "Trained tokens whose ratio to the old policy a bound of the loss cut off."
TWO_PROGRAMS = "Of the same token under the same weights, computed by two programs."
METRICS = (
    Metrics(
        "signal", "Groups with a signal", "share of groups", {"groups with a signal": _signal},
        note="Only groups whose rewards differ teach anything.", low=0, high=1,
    ),
    Metrics("entropy", "Entropy", "nats a token", {"entropy": "entropy"}, low=0),
    Metrics(
        "kl", "KL", "nats a token",
        {"policy to reference": "kl_reference", "sampler to learner (k3)": "kl_rollout_k3"},
    ),
    Metrics(
        "gap", "Sampler against learner", "|log-prob difference|",
        {"largest": "gap_max", "mean": "gap_mean"}, note=TWO_PROGRAMS, log=True,
    ),
    Metrics(
        "length", "Length", "tokens a trajectory",
        {"written by the policy": "response_length", "in all": "total_length"}, low=0,
    ),
    Metrics(
        "calls", "Turns and tool calls", "mean of a trajectory",
        {"calls": "calls", "turns": "turns"}, low=0,
    ),
    Metrics(
        "failed", "Calls that failed", "share of calls",
        {
            "failed in the tool": "call_failed_fraction",
            "written wrong by the policy": "call_invalid_fraction",
        },
        low=0, high=1,
    ),
    Metrics(
        "times", "Model and tools", "seconds a trajectory",
        {"the model generated": "generate_s", "tools worked": "tool_s"}, low=0,
    ),
    Metrics("latency", "Latency of tool calls", "seconds a call", {"mean": _latency}, low=0),
    Metrics(
        "staleness", "Staleness", "weight versions",
        {"mean": "staleness_mean", "largest": "staleness_max"}, low=0,
    ),
    Metrics(
        "masked", "Left out of the loss", FRACTION,
        {"masked": lambda step: step.masked_share, "truncated": "truncated_fraction"},
        low=0, high=1,
    ),
    Metrics(
        "speed", "Speed", "tokens/s",
        {
            "policy tokens, over the whole step": lambda step: step.tokens_per_second,
            "tokens forwarded in training": "tokens_per_s",
        },
        low=0,
    ),
    Metrics("gradient", "Gradient", "norm", {"before clipping": "grad_norm"}, low=0),
    Metrics(
        "clip", "Clipped", "share of tokens",
        {
            "at either bound": "clip_fraction",
            "at the upper": "clip_high_fraction",
            "at the lower": "clip_low_fraction",
        },
        note=OF_TOKENS, low=0,
    ),
    Metrics("rate", "Learning rate", "rate", {"learning rate": "learning_rate"}, low=0),
)  # fmt: skip
IMITATION = Metrics(
    "imitation", "Imitation", "loss a token", {"loss": "loss", "held-out loss": "heldout_loss"},
    low=0,
)  # fmt: skip


def curve(
    runs: Sequence[RunFiles], main: NamedSuite | None, every: Sequence[NamedSuite]
) -> Plot | None:
    """Evaluations of the suite that counts over the reward of training; None without either. Where
    that suite was asked at the ends alone, the one that was asked most often is drawn thin."""
    lines = []
    for run in runs:
        rewards = [(step.step, step.reward) for step in run.record.steps if step.reward is not None]
        means = smooth([reward for _, reward in rewards], WINDOW)
        points = [(float(at), mean) for (at, _), mean in zip(rewards, means, strict=True)]
        style = "control" if run.resolved.control else "reward"
        name = f"training reward, mean of {WINDOW} steps"
        lines.append(line(name, style, points, "hover", run_label(run, runs)))
    drawn = [] if main is None else [(main, "")]
    often = max(every, key=lambda one: _most(runs, one), default=None)
    if main is not None and often is not None and _most(runs, main) < 3 <= _most(runs, often):
        drawn.insert(0, (often, " thin"))
    lines += [
        _evaluated(run, named, way, f"{named.title}, {way}", run_label(run, runs), thin)
        for named, thin in drawn
        for way in reversed(WAYS)
        for run in runs
    ]
    return plot("curve", "Learning curve", "mean reward", lines, low=_low(lines), high=_high(lines))


def _most(runs: Sequence[RunFiles], named: NamedSuite) -> int:
    """Versions at which a suite was measured, in the run that has most."""
    return max(len(run.record.curve(suite)) for run in runs for suite in named.ways.values())


def suites(runs: Sequence[RunFiles], named: Iterable[NamedSuite]) -> list[Plot]:
    """All suites over each other with their average; then a plot a suite, both ways over each
    other; those that were measured twice somewhere."""
    named = list(named)
    found = _together(runs, named)
    for one in named:
        lines = [
            _evaluated(run, one, way, way, run_label(run, runs)) for way in WAYS for run in runs
        ]
        drawn = plot(
            f"suite:{one.name}", one.title, "mean reward", lines, low=_low(lines), high=_high(lines)
        )
        if drawn is not None and any(len(of["x"]) > 1 for of in drawn["lines"]):
            found.append(drawn)
    return found


def _together(runs: Sequence[RunFiles], named: Sequence[NamedSuite]) -> list[Plot]:
    """The suites that judge, of a single run, and their unweighted mean. Of several runs the means
    alone. Nothing with fewer than two suites or two measurements."""
    averages, lines = [], []
    for place, run in enumerate(runs):
        whose = run_label(run, runs)
        own = [_suite_line(run, one, number) for number, one in enumerate(named)]
        control = " control" if run.resolved.control else ""
        style = f"{colour(place)}{control}" if len(runs) > 1 else f"c{COLOURS - 1} dash1"
        averages.append(_average([one for one in own if one["x"]], style, whose))
        lines += own if len(runs) == 1 else []
    if not any(len(one["x"]) > 1 for one in averages):
        return []
    lines += averages
    drawn = plot("suites", "All suites", "mean reward", lines, low=_low(lines), high=_high(lines))
    return [] if drawn is None else [drawn]


def _suite_line(run: RunFiles, one: NamedSuite, number: int) -> dict[str, Any]:
    points = [(float(e.step), e.reward) for e in run.record.curve(one.main)]
    return line(one.title, colour(number), points, "seen") | {"suite": one.main}


def _average(lines: Sequence[dict[str, Any]], style: str, whose: str) -> dict[str, Any]:
    """The mean of several lines, at the steps that all of them have."""
    values = [dict(zip(one["x"], one["y"], strict=True)) for one in lines]
    steps = [x for x in values[0] if all(x in one for one in values)] if len(values) > 1 else []
    points = [(x, fmean(one[x] for one in values)) for x in steps]
    return line(f"average of {len(lines)} suites", style, points, "seen", whose)


def beside(runs: Sequence[RunFiles], named: Iterable[NamedSuite]) -> list[Plot]:
    """A plot for each part of the rewards of evaluations, and for each rate, a line a suite: what
    the policy did beside being right. A part that is all of the reward everywhere is left out, and
    one that was measured once."""
    suites = [(one.main, one.title) for one in named]
    measured = [e for run in runs for suite, _ in suites for e in run.record.curve(suite)]
    names = dict.fromkeys(name for one in measured for name in one.parts)
    parts = [
        name
        for name in names
        if any(abs(e.parts.get(name, e.reward) - e.reward) > ROUNDING for e in measured)
    ]
    rates = dict.fromkeys(name for one in measured for name in one.rates)
    found = []
    for kind, name in (
        *(("part", name) for name in parts[:MOST_PARTS]),
        *(("rate", name) for name in list(rates)[:MOST_PARTS]),
    ):
        lines = [
            _part(run, suite, kind, name, number, title, run_label(run, runs))
            for number, (suite, title) in enumerate(suites)
            for run in runs
        ]
        low = 0.0 if all(y >= 0 for one in lines for y in one["y"]) else None
        unit = "mean of the suite" if kind == "part" else "rate of the suite"
        drawn = plot(f"{kind}:{name}", name, unit, lines, low=low)
        if drawn is not None and any(len(of["x"]) > 1 for of in drawn["lines"]):
            found.append(drawn)
    return found


def training(runs: Sequence[RunFiles]) -> list[Plot]:
    """Everything that the learner's lines tell, those plots left out that have no point."""
    found = [_parts_of_reward(runs), *(_metrics(runs, one) for one in METRICS)]
    first = next((run for run in runs if run.record.steps), None)
    if first is not None:
        found += [_stops(first, runs), _seconds(first, runs)]
    found.append(_metrics(runs, IMITATION, imitation=True))
    return [one for one in found if one is not None]


def _metrics(runs: Sequence[RunFiles], one: Metrics, *, imitation: bool = False) -> Plot | None:
    lines = [
        metric_line(run, steps, value, number, name, run_label(run, runs))
        for number, (name, value) in enumerate(one.values.items())
        for run in runs
        for steps in ((run.record.imitation if imitation else run.record.steps),)
    ]
    return plot(
        one.key, one.title, one.unit, lines, note=one.note, log=one.log, low=one.low, high=one.high
    )


def metric_line(
    run: RunFiles, steps: Sequence[Step], value: str | Value, number: int, name: str, whose: str
) -> dict[str, Any]:
    """The line of one metric; the same metric has the same colour in all runs."""
    get = (lambda step: step.values.get(value)) if isinstance(value, str) else value
    control = " control" if run.resolved.control else ""
    return line(name, f"{colour(number)}{control}", _points(steps, get), "hover", whose)


def _parts_of_reward(runs: Sequence[RunFiles]) -> Plot | None:
    names = dict.fromkeys(
        name
        for run in runs
        for step in (*run.record.steps[:1], *run.record.steps[-1:])
        for name in step.values
        if name.startswith("reward/")
    )
    parts = list(names)[:MOST_PARTS]
    left_out = len(names) - len(parts)
    # A single part is the reward itself.
    values = {"reward": "reward"} | (
        {name.removeprefix("reward/"): name for name in parts} if len(names) > 1 else {}
    )
    title = "Reward and its parts" if len(values) > 1 else "Reward"
    note = f"{left_out} more parts are in learner.jsonl." if left_out else ""
    one = Metrics("reward", title, "mean of the batch", values, note=note)
    drawn = _metrics(runs, one)
    for of in drawn["lines"] if drawn is not None and len(values) > 1 else ():
        if of["name"] == "reward":
            of["style"] += " beneath"  # a part may be all of it
    return drawn


def _stops(run: RunFiles, runs: Sequence[RunFiles]) -> Plot | None:
    totals: dict[str, float] = {}
    for step in run.record.steps:
        for name, value in step.values.items():
            if name.startswith("stop/"):
                totals[name] = totals.get(name, 0.0) + value
    names = sorted(totals, key=lambda name: (-totals[name], name))
    shown, others = names[:MOST_PARTS], names[MOST_PARTS:]

    def share(step: Step, *, of: Sequence[str]) -> float | None:
        whole = step.values.get("trajectories")
        return sum(step.values.get(name, 0.0) for name in of) / whole if whole else None

    groups = [(name.removeprefix("stop/"), [name]) for name in shown]
    groups += [("others", others)] if others else []
    lines = [
        line(name, colour(number), _points(run.record.steps, partial(share, of=of)), "none")
        for number, (name, of) in enumerate(groups)
    ]
    title = ", ".join(filter(None, ("Why trajectories stopped", run_label(run, runs))))
    return plot("stops", title, FRACTION, lines, kind="areas", high=1)


def _seconds(run: RunFiles, runs: Sequence[RunFiles]) -> Plot | None:
    def part(step: Step, *, key: str) -> float | None:
        return step.values.get(key, 0.0) if "step_s" in step.values else None

    def other(step: Step) -> float | None:
        phases = sum(step.values.get(key, 0.0) for key in STEP)
        return max(0.0, step.values["step_s"] - phases) if "step_s" in step.values else None

    parts: list[tuple[str, Value]] = [
        *((name, partial(part, key=key)) for key, (name, _) in STEP.items()),
        (REST_OF_STEP[0], other),
    ]
    lines = [
        line(name, colour(number), _points(run.record.steps, value), "none")
        for number, (name, value) in enumerate(parts)
    ]
    title = ", ".join(filter(None, ("Seconds of a step", run_label(run, runs))))
    return plot("seconds", title, "seconds", lines, kind="areas")


def _points(steps: Sequence[Step], value: Value) -> list[tuple[float, float]]:
    found = ((step.step, value(step)) for step in steps)
    return [(float(at), y) for at, y in found if y is not None]


def _evaluated(
    run: RunFiles, named: NamedSuite, way: str, name: str, whose: str, also: str = ""
) -> dict[str, Any]:
    """also: more classes of the style."""
    found = run.record.curve(named.ways[way]) if way in named.ways else ()
    points = [(float(e.step), e.reward) for e in found]
    errors = {float(e.step): shown_error(e) or 0.0 for e in found}
    style = f"{way}{also}{' control' if run.resolved.control else ''}"
    drawn = line(name, style, points, "seen", whose)
    found_errors = [short(errors[x]) for x in drawn["x"]]
    return {**drawn, "suite": named.ways.get(way, ""), "error": found_errors}


def _part(
    run: RunFiles, suite: str, kind: str, name: str, number: int, title: str, whose: str
) -> dict[str, Any]:
    """The line of one part of a suite's reward, or of a rate; the same suite has the same colour in
    all plots."""
    control = " control" if run.resolved.control else ""
    found = [
        (float(e.step), e.parts if kind == "part" else e.rates) for e in run.record.curve(suite)
    ]
    points = [(step, values[name]) for step, values in found if name in values]
    drawn = line(title, f"{colour(number)}{control}", points, "seen", whose)
    return drawn | {"suite": suite}


def run_label(run: RunFiles, runs: Sequence[RunFiles]) -> str:
    """The run's name, for a line beside those of other runs; "" for a single run."""
    if len(runs) == 1:
        return ""
    return f"{run.name} (control: learning rate 0)" if run.resolved.control else run.name


def _low(lines: Iterable[dict[str, Any]]) -> float | None:
    """0 where all rewards lie between 0 and 1, so that charts can be compared by eye."""
    return 0.0 if all(0 <= y <= 1 for one in lines for y in one["y"]) else None


def _high(lines: Iterable[dict[str, Any]]) -> float | None:
    """1 there."""
    return None if _low(lines) is None else 1.0
