"""Prometheus metrics of the loop: the values of the last metrics line, and counters.

The names are Prometheus' own, the numbers those of `learner.metrics`: nothing is computed here. A
step that taught nothing has no loss. A missing number is NaN, which no alert takes for a value.

Called between steps, on rank 0 alone; a scrape reads in a thread of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from learner.ranks import device

_PREFIX = "toolwright_learner"
_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)

PHASES = ("lease", "logprobs", "train", "export", "publish", "paused", "checkpoint", "step")
"""Phases of a step. The metrics line has their seconds under these names with `_s` appended;
`step` is the whole step."""
LAST = {
    "reward": "mean reward of the trajectories that were not masked",
    "reward_std": "its standard deviation",
    "loss": "of the policy, all terms together",
    "entropy": "mean over the trained tokens",
    "kl_reference": "mean over the trained tokens, to the reference policy",
    "clip_fraction": "trained tokens whose ratio was clipped",
    "grad_norm": "before it was clipped",
    "learning_rate": "of the step",
    "gap_max": "largest difference of log-probs between sampler and learner",
    "staleness_mean": "versions between writing and training",
    "staleness_max": "the same of the oldest",
    "response_length": "tokens that the policy wrote, mean over trajectories",
    "tokens_per_s": "of all rows while they were trained on",
    "masked": "trajectories without loss",
    "worthless_steps": "in a row that taught nothing",
}
"""Numbers of the metrics line that are exported unchanged, with their meaning."""
_NAMES = {"tokens_per_s": "tokens_per_second", "grad_norm": "gradient_norm", "gap_max": "gap"}


class LoopGauges:
    """The learner's metrics, in a registry of their own."""

    def __init__(self, *, max_staleness: int) -> None:
        """max_staleness: the recipe's bound, exported beside the measured staleness."""
        self.registry = CollectorRegistry()
        self._unacknowledged = 0

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"{_PREFIX}_{name}", text, registry=self.registry)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"{_PREFIX}_{name}", text, registry=self.registry)

        self._seconds = Histogram(
            f"{_PREFIX}_step_seconds", "time of a step", ["phase"],
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._last = {key: gauge(_NAMES.get(key, key), text) for key, text in LAST.items()}
        self._version = gauge("weight_step", "last trained version")
        self._ended = gauge("step_timestamp_seconds", "when the last step ended, Unix time")
        self._saved = gauge(
            "checkpoint_timestamp_seconds", "when the last checkpoint was written, Unix time"
        )
        self._tokens = counter("trained_tokens", "tokens with loss")
        self._trajectories = counter("trajectories", "trajectories trained on or masked")
        self._leased = counter("groups_leased", "groups that steps used")
        self._acknowledged = counter("groups_acknowledged", "groups that a checkpoint holds")
        self._published = counter("versions_published", "versions published to the samplers")
        self._device = gauge("device_memory_bytes", "peak of tensors on the GPU; 0 without one")
        gauge("staleness_bound", "run.max_staleness").set(max_staleness)
        ProcessCollector(namespace=_PREFIX, registry=self.registry)

    def step(self, step: int, values: Mapping[str, Any]) -> None:
        """Takes a step's metrics line."""
        for phase in PHASES:
            if (seconds := values.get(f"{phase}_s")) is not None:
                self._seconds.labels(phase).observe(seconds)
        for key, gauge in self._last.items():
            value = values.get(key)
            gauge.set(math.nan if value is None else float(value))
        self._version.set(step)
        self._ended.set(time.time())
        self._tokens.inc(values.get("trained_tokens", 0))
        self._trajectories.inc(values["trajectories"])
        self._leased.inc(values["groups"])
        self._unacknowledged += values["groups"]
        self._device.set(device.peak_memory_bytes())

    def published(self) -> None:
        """Counts a version that went to the samplers."""
        self._published.inc()

    def saved(self) -> None:
        """Counts all groups leased so far as acknowledged: a checkpoint holds them."""
        self._saved.set(time.time())
        self._acknowledged.inc(self._unacknowledged)
        self._unacknowledged = 0
