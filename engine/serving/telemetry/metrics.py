"""The engine's Prometheus metrics about finished trajectories, one registry per engine.

`parts.py` has the counters of the engine's parts (samplers, tool services, journal).
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import deque
from functools import lru_cache
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    Summary,
)

from engine.serving.telemetry.lag import LoopLag
from engine.serving.telemetry.parts import PartMetrics
from toolwright.recipe.models.stop_rules import mask_reasons
from toolwright.types import Author, Status, ToolErrorKind, Trajectory

WINDOW = 256
"""Number of trajectories in the mean reward."""
MOST_SERIES = 1024
"""Series that are kept at hand; finding one by its labels costs 4 us and a lock."""
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_DISPATCH = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05)


class Metrics:
    """The engine's metrics in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._series: Any = lru_cache(MOST_SERIES)(lambda metric, *labels: metric.labels(*labels))
        ProcessCollector(namespace="toolwright_engine", registry=self.registry)
        self.parts = PartMetrics(self.registry)
        self.loop_lag = LoopLag(self.registry)
        self.trajectories = Counter(
            "toolwright_engine_trajectories", "finished trajectories", ["lane", "stop_reason"],
            registry=self.registry,
        )  # fmt: skip
        self.masked = Counter(
            "toolwright_engine_masked_trajectories",
            "finished trajectories without loss, under each reason",
            ["reason"], registry=self.registry,
        )  # fmt: skip
        self.tokens = Counter(
            "toolwright_engine_tokens",
            "tokens of finished trajectories",
            ["author"],
            registry=self.registry,
        )
        self.calls = Counter(
            "toolwright_engine_tool_calls", "tool calls", ["tool", "error"], registry=self.registry
        )
        self.seconds = Histogram(
            "toolwright_engine_trajectory_seconds", "time of a trajectory", ["part"],
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self.dispatch = Histogram(
            "toolwright_engine_dispatch_seconds", "stop read to call on the channel",
            buckets=_DISPATCH, registry=self.registry,
        )  # fmt: skip
        self.reward = Summary(
            "toolwright_engine_reward",
            "rewards; their sum falls with a negative one",
            registry=self.registry,
        )
        self.reward_mean = Gauge(
            "toolwright_engine_reward_mean", f"mean reward of the last {WINDOW} trajectories",
            registry=self.registry,
        )  # fmt: skip
        self._rewards: deque[float] = deque(maxlen=WINDOW)
        self.running = Gauge(
            "toolwright_engine_running", "trajectories in flight", registry=self.registry
        )
        self.waiting = Gauge(
            "toolwright_engine_waiting_groups",
            "complete groups not yet acknowledged",
            registry=self.registry,
        )
        self.version = Gauge(
            "toolwright_engine_weight_step", "published step", registry=self.registry
        )

    def count(self, trajectory: Trajectory) -> None:
        """Adds one finished trajectory."""
        lane = trajectory.task.purpose.name.lower()
        self._series(self.trajectories, lane, trajectory.stop_reason.name.lower()).inc()
        reasons = mask_reasons(
            masked=trajectory.masked,
            errored=trajectory.status is Status.ERRORED,
            events=trajectory.events,
        )
        for reason in reasons:
            self._series(self.masked, reason).inc()
        tokens, calls = Tally[Author](), Tally[tuple[str, ToolErrorKind]]()
        for segment in trajectory.segments:
            tokens[segment.author] += len(segment.token_ids)
        for author, count in tokens.items():
            self._series(self.tokens, author.name.lower()).inc(count)
        for call in trajectory.calls:
            # A name that the policy invented would be a new series each time.
            known = call.tool and call.outcome.error is not ToolErrorKind.UNKNOWN_TOOL
            calls[call.tool if known else "unknown", call.outcome.error] += 1
            if call.timings.dispatched_ns and call.timings.stop_read_ns:
                waited = call.timings.dispatched_ns - call.timings.stop_read_ns
                self.dispatch.observe(waited / 1e9)
        for (tool, error), count in calls.items():
            self._series(self.calls, tool, error.name.lower()).inc(count)
        for part in ("wall", "generate", "tool", "reward", "open"):
            self._series(self.seconds, part).observe(getattr(trajectory.timings, f"{part}_s"))
        self.reward.observe(trajectory.reward)
        self._rewards.append(trajectory.reward)
        self.reward_mean.set(self.mean_reward)

    @property
    def mean_reward(self) -> float:
        """The mean reward of the last WINDOW trajectories; 0 before the first."""
        return sum(self._rewards) / max(len(self._rewards), 1)
