"""The metrics of a step: JSON lines.

Owns the names. Sums from the micro-batches become means here. Facts about the trajectories
(rewards, lengths, calls, times) come from the record; masked trajectories are only counted.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolwright.credit.signal import varies
from toolwright.reward_figures import DEVIATION, MEASURED, METRIC, numbers_of
from toolwright.types import (
    CallRecord,
    Group,
    Status,
    Trajectory,
    WeightVersion,
)

LONGEST_ERROR = 200
LONGEST_LINE = 1 << 20
LARGEST_FIGURE = 1e300
MOST_TOOLS = 16
"""Largest number of tools with metrics of their own. A session may bring any number of tools."""
MOST_MEASURED = 32
"""Largest number of such figures in a line. A recipe may name any number."""
REWARD_FAILED, CUT, FORKED = "reward_failed", "observation_truncated", "sequence_forked"
"""Kinds of the engine's events."""
MOST_CAUSES = 8
"""Largest number of causes of forks with a metric of their own."""


class MetricsLog:
    """<folder>/NAME.jsonl; a context manager, appends."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lines = (folder / f"{name}.jsonl").open("a", buffering=1, encoding="utf-8")

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *_error: object) -> None:
        self._lines.close()

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """One line."""
        clean = {key: _json(value) for key, value in values.items()}
        self._lines.write(json.dumps({"step": step, **clean}) + "\n")


def finite(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among a line's values."""
    return {
        key: float(value)
        for key, value in values.items()
        if isinstance(value, int | float) and abs(value) <= LARGEST_FIGURE
    }


def earlier_steps(folder: Path, before: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Figures of the steps up to `before` from earlier lives of the run. Skips broken lines."""
    file = folder / "learner.jsonl"
    if not file.is_file():
        return
    with file.open("rb") as lines:
        while line := lines.readline(LONGEST_LINE):
            try:
                values = json.loads(line)
                step = int(values["step"])
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if step <= before:
                yield step, finite(values)


TASK_METRICS = (
    "groups", "groups_with_signal", "trajectories", "masked", "stop", "reward", "reward_std",
    "response_length", "calls", "call_failed_fraction", "call_invalid_fraction",
    "truncated_fraction",
)  # fmt: skip
"""Metrics that each of several tasks has too: names, up to their first slash."""
OVER_TRAINED = (
    ("entropy", "entropy"),
    ("clip_high_fraction", "clipped_above"),
    ("clip_low_fraction", "clipped_below"),
    ("dual_clip_fraction", "dual_clipped"),
    ("ratio", "ratio"),
    ("kl_reference", "kl_reference"),
    ("correction_weight", "weight"),
    ("correction_capped_fraction", "weight_capped"),
)
OVER_COMPARED = (
    ("kl_rollout_k1", "kl_rollout_k1"),
    ("kl_rollout_k3", "kl_rollout_k3"),
    ("offpolicy_gap_mean", "gap"),
    ("correction_masked_fraction", "masked_tokens"),
)
LARGEST_EXPONENT = 700.0


def training_stats(sums: Mapping[str, float]) -> dict[str, float]:
    """Means over tokens from a step's sums (see `objective.Stats`)."""
    out: dict[str, float] = {}
    tokens, compared = sums.get("tokens", 0.0), sums.get("compared", 0.0)
    if tokens:
        out["trained_tokens"] = tokens
        out |= {name: sums[source] / tokens for name, source in OVER_TRAINED if source in sums}
        if "clipped_above" in sums:
            out["clip_fraction"] = (sums["clipped_above"] + sums["clipped_below"]) / tokens
    if compared:
        out |= {name: sums[source] / compared for name, source in OVER_COMPARED if source in sums}
        out["offpolicy_gap_max"] = sums["max_gap"]
        out["rho_max"] = sums["max_rho"]
        out["perplexity_difference"] = _perplexity_difference(sums)
    for name in ("vetoed", "rejected"):
        if name in sums:
            out[f"{name}_sequences"] = sums[name]
    if sums.get("weight_squared"):
        out["effective_sample_fraction"] = sums["weight"] ** 2 / (sums["weight_squared"] * tokens)
    if "loss" in sums:
        out["loss"] = sums["loss"]
    return out


def _perplexity_difference(sums: Mapping[str, float]) -> float:
    """The learner's perplexity of the compared tokens minus the sampler's."""
    sampler = -sums["rollout_logp"] / sums["compared"]
    learner = sampler + sums["kl_rollout_k1"] / sums["compared"]
    return math.exp(min(learner, LARGEST_EXPONENT)) - math.exp(min(sampler, LARGEST_EXPONENT))


def gap_of(sums: Mapping[str, float]) -> dict[str, float]:
    """Sampler/learner agreement on tokens of the same weight version; empty without such tokens."""
    tokens = sums.get("fresh_tokens", 0.0)
    if not tokens:
        return {}
    return {
        "gap_max": sums["max_fresh_gap"],
        "gap_mean": sums["fresh_gap"] / tokens,
        "gap_tokens": tokens,
    }


def trajectory_stats(groups: Sequence[Group], version: WeightVersion) -> dict[str, Any]:
    """Rewards and their parts, lengths, calls, times, staleness, what was masked."""
    everything = [t for group in groups for t in group.trajectories]
    kept = [t for t in everything if not t.masked]
    out: dict[str, Any] = {
        "groups": len(groups),
        "trajectories": len(everything),
        "masked": len(everything) - len(kept),
        "outside_baseline": sum(t.outside_baseline for t in everything),
        "tokens_without_loss": sum(
            len(s.token_ids) for t in kept for s in t.written if not s.trainable
        ),
    }
    stops = Counter(t.stop_reason.name.lower() for t in everything)
    out.update({f"stop/{name}": count for name, count in sorted(stops.items())})
    out.update(call_stats([call for t in everything for call in t.calls]))
    out.update(reward_failures(everything))
    if not kept:
        return out
    rewards = [t.reward for t in kept]
    out["reward"] = _mean(rewards)
    out["reward_std"] = _deviation(rewards)
    parts: dict[str, float] = defaultdict(float)
    for trajectory in kept:
        for part in trajectory.reward_parts:
            parts[part.name] += part.value
    out.update({f"reward/{name}": total / len(kept) for name, total in sorted(parts.items())})
    out.update(measured_stats(kept))
    out["groups_with_signal"] = sum(map(_rewards_differ, groups))
    out["response_length"] = _mean([t.response_tokens for t in kept])
    out["total_length"] = _mean(
        [sum(len(s.token_ids) for s in q.segments) for t in kept for q in t.sequences]
    )
    out.update(sequence_stats(kept))
    out["calls"] = _mean([len(t.calls) for t in kept])
    out["turns"] = _mean([t.turns for t in kept])
    out["truncated_fraction"] = _mean([float(t.status is Status.TRUNCATED) for t in kept])
    out["observation_cut_fraction"] = _mean(
        [float(any(event.kind == CUT for event in t.events)) for t in kept]
    )
    for name in ("wall_s", "open_s", "generate_s", "tool_s", "reward_s"):
        out[name] = _mean([getattr(t.timings, name) for t in kept])
    spent = out["generate_s"] + out["tool_s"]
    out["tool_fraction"] = out["tool_s"] / spent if spent else 0.0
    trained = [
        {s.weight_version for s in t.written if s.trainable and s.weight_version} for t in kept
    ]
    ages = [max(0, version.step - v.step) for versions in trained for v in versions]
    if ages:
        out["staleness_mean"] = _mean(ages)
        out["staleness_max"] = max(ages)
    out["versions_per_trajectory"] = _mean([len(t.weight_versions) for t in kept])
    return out


def sequence_stats(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Sequences of a trajectory, share of tokens that are copies of another sequence's, and forks
    of a trajectory by their cause."""
    sequences = [sequence for t in trajectories for sequence in t.sequences]
    shared = sum(sum(t.shared_prefixes) for t in trajectories)
    tokens = sum(len(s.token_ids) for sequence in sequences for s in sequence.segments)
    causes = Counter(
        str(event.data.get("cause", "unknown"))
        for t in trajectories
        for event in t.events
        if event.kind == FORKED
    )
    count = max(1, len(trajectories))
    return {
        "sequences": len(sequences) / count,
        "shared_prefix_fraction": shared / max(1, tokens),
        **{f"forks/{cause}": n / count for cause, n in causes.most_common(MOST_CAUSES)},
    }


def task_stats(
    groups: Sequence[Group],
    version: WeightVersion,
    sums: Mapping[str, float],
    tasks: Sequence[str],
) -> dict[str, Any]:
    """Metrics of each of several tasks, as "task/NAME/METRIC".

    They come from the task's trajectories and from the sums over its tokens. A task's loss is its
    part of the whole loss.
    """
    out: dict[str, Any] = {}
    for task in tasks:
        own = [group for group in groups if any(t.task.name == task for t in group.trajectories)]
        facts = trajectory_stats(own, version)
        found = {name: facts[name] for name in facts if name.partition("/")[0] in TASK_METRICS}
        if tokens := sums.get(f"tokens/{task}"):
            found["trained_tokens"] = tokens
            found["loss"] = sums[f"loss/{task}"]
            found["clip_fraction"] = sums[f"clipped/{task}"] / tokens
            for name in ("entropy", "kl_reference"):
                if f"{name}/{task}" in sums:
                    found[name] = sums[f"{name}/{task}"] / tokens
        out |= {f"task/{task}/{name}": value for name, value in found.items()}
    return out


def measured_stats(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Means of the figures in events of the kind MEASURED, each over the trajectories that state
    it.

    A figure may be a list, such as the length of each query: then the mean is over all members of
    all lists, and NAME_deviation is their standard deviation. Leaves out what is not a finite
    number.
    """
    found: dict[str, list[float]] = defaultdict(list)
    listed: set[str] = set()
    for trajectory in trajectories:
        for event in trajectory.events:
            for name, value in event.data.items() if event.kind == MEASURED else ():
                if numbers := numbers_of(value):
                    found[name] += numbers
                    listed |= {name} if isinstance(value, list | tuple) else set()
    out: dict[str, float] = {}
    for name in sorted(found)[:MOST_MEASURED]:
        out[f"{METRIC}{name}"] = _mean(found[name])
        if name in listed:
            out[f"{METRIC}{name}{DEVIATION}"] = _deviation(found[name])
    return out


def reward_failures(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """Number of trajectories whose reward function failed, and the commonest reason.

    A reward that is not a finite number counts as a failure.
    """
    said = [
        str(event.data.get("error", ""))
        for trajectory in trajectories
        for event in trajectory.events
        if event.kind == REWARD_FAILED
    ]
    if not said:
        return {"rewards_failed": 0} if trajectories else {}
    reason = " ".join(Counter(said).most_common(1)[0][0].split())
    return {"rewards_failed": len(said), "reward_error": reason[:LONGEST_ERROR]}


def call_stats(calls: Sequence[CallRecord]) -> dict[str, Any]:
    """Shares of calls that failed, over all calls and for each tool that was reached.

    Calls that the policy wrote wrong are counted on their own. `call_error` is the commonest
    failure, "TOOL: SENTENCE".
    """
    if not calls:
        return {}
    reached = [call for call in calls if not call.outcome.malformed]
    failed = [call for call in calls if call.outcome.failed]
    out: dict[str, Any] = {
        "call_failed_fraction": len(failed) / len(calls),
        "call_invalid_fraction": (len(calls) - len(reached)) / len(calls),
    }
    failures = Counter(call.tool for call in failed)
    for tool, count in Counter(call.tool for call in reached).most_common(MOST_TOOLS):
        out[f"call_failed_fraction/{tool}"] = failures[tool] / count
    if failed:
        out["call_error"] = Counter(map(_failure_line, failed)).most_common(1)[0][0]
    return out


def _failure_line(call: CallRecord) -> str:
    """The tool and its failure in one line. A traceback gives its last line."""
    lines = call.outcome.observation.strip().splitlines() or [call.outcome.error.name.lower()]
    said = lines[-1:] if lines[0].startswith("Traceback") else lines
    return f"{call.tool}: {' '.join(' '.join(said).split())}"[:LONGEST_ERROR]


def _rewards_differ(group: Group) -> bool:
    """Whether rewards of the baseline differ and a member carries loss."""
    baseline = [t.reward for t in group.trajectories if not t.outside_baseline]
    return varies(baseline) and not all(t.masked for t in group.trajectories)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _deviation(values: Sequence[float]) -> float:
    """The root of the mean squared distance from the mean."""
    mean = _mean(values)
    return math.sqrt(_mean([(value - mean) ** 2 for value in values]))


def _json(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value
