"""What the engine tells about itself: Prometheus metrics, logs for machines, lines for people."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections import deque
from pathlib import Path
from typing import TextIO

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from engine.telemetry.lag import LoopLag
from toolwright.types import ToolErrorKind, Trajectory

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_DISPATCH = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05)


WINDOW = 256
"""Trajectories behind the mean reward."""


class Metrics:
    """The engine's Prometheus metrics in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.trajectories = Counter(
            "engine_trajectories", "finished trajectories", ["lane", "stop_reason"],
            registry=self.registry,
        )  # fmt: skip
        self.tokens = Counter(
            "engine_tokens", "tokens of finished trajectories", ["author"], registry=self.registry
        )
        self.calls = Counter(
            "engine_tool_calls", "tool calls", ["tool", "error"], registry=self.registry
        )
        self.seconds = Histogram(
            "engine_trajectory_seconds", "time of a trajectory", ["part"],
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self.dispatch = Histogram(
            "engine_dispatch_seconds", "stop read to call on the channel",
            buckets=_DISPATCH, registry=self.registry,
        )  # fmt: skip
        self.reward = Histogram(
            "engine_reward", "rewards; below 0 is possible, so that they have no sum",
            buckets=(-1, 0, 0.25, 0.5, 0.75, 1), registry=self.registry,
        )  # fmt: skip
        self.reward_mean = Gauge(
            "engine_reward_mean", f"mean reward of the last {WINDOW} trajectories",
            registry=self.registry,
        )  # fmt: skip
        self.loop_lag = LoopLag(self.registry)
        self._rewards: deque[float] = deque(maxlen=WINDOW)
        self.running = Gauge("engine_running", "trajectories in flight", registry=self.registry)
        self.waiting = Gauge(
            "engine_waiting_groups", "complete groups not yet acknowledged", registry=self.registry
        )
        self.version = Gauge("engine_weight_step", "published step", registry=self.registry)

    def serve(self, port: int) -> None:
        """Loopback HTTP; OSError when the port is taken."""
        start_http_server(port, addr="127.0.0.1", registry=self.registry)

    def count(self, trajectory: Trajectory) -> None:
        """Adds one finished trajectory."""
        lane = trajectory.task.purpose.name.lower()
        self.trajectories.labels(lane, trajectory.stop_reason.name.lower()).inc()
        for sequence in trajectory.sequences:
            for segment in sequence.segments:
                self.tokens.labels(segment.author.name.lower()).inc(len(segment.token_ids))
        for call in trajectory.calls:
            # What the policy made up would be a new series for every name that it invents.
            known = call.tool and call.error is not ToolErrorKind.UNKNOWN_TOOL
            self.calls.labels(call.tool if known else "unknown", call.error.name.lower()).inc()
            if call.timings.dispatched_ns:
                waited = call.timings.dispatched_ns - call.timings.stop_read_ns
                self.dispatch.observe(waited / 1e9)
        for part in ("wall", "generate", "tool", "reward", "open"):
            self.seconds.labels(part).observe(getattr(trajectory.timings, f"{part}_s"))
        self.reward.observe(trajectory.reward)
        self._rewards.append(trajectory.reward)
        self.reward_mean.set(self.mean_reward)

    @property
    def mean_reward(self) -> float:
        """Of the last WINDOW trajectories; 0 before the first."""
        return sum(self._rewards) / max(len(self._rewards), 1)


class Progress:
    """A line for people every few seconds: state, step, in flight, tokens a second, reward."""

    def __init__(self, steps: int, out: TextIO = sys.stderr) -> None:
        self._steps = steps
        self._out = out
        self._began = time.monotonic()
        self._tokens = 0
        self._last = (time.monotonic(), 0)

    def count(self, trajectory: Trajectory) -> None:
        self._tokens += trajectory.response_tokens

    def line(
        self, *, state: str, step: int, running: int, evaluating: int, waiting: int, reward: float
    ) -> str:
        now = time.monotonic()
        then, before = self._last
        rate = (self._tokens - before) / max(now - then, 1e-9)
        self._last = (now, self._tokens)
        parts = [
            f"[{now - self._began:6.0f} s] {state:10s} version {step}/{self._steps}",
            f"{running} in flight",
            f"{waiting} groups waiting",
            f"{rate:,.0f} tokens/s",
            f"reward {reward:.3f}",
        ]
        if evaluating:
            parts.append(f"{evaluating} evaluating")
        return ", ".join(parts)

    def show(self, line: str) -> None:
        print(line, file=self._out, flush=True)


def log_to(file: Path) -> None:
    """Structured logs as JSON lines to `file`, warnings also to stderr as text."""
    file.parent.mkdir(parents=True, exist_ok=True)
    stream = _Patient(file.open("a", buffering=1))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            _warn_people,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=stream),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )


class _Patient:
    """A text stream that drops what a full disk does not take: a log line ends no run."""

    def __init__(self, inner: TextIO) -> None:
        self._inner = inner

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return self._inner.write(text)
        return 0

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._inner.flush()


def _warn_people(
    _logger: object, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if method in ("warning", "error", "critical"):
        rest = " ".join(
            f"{k}={v}" for k, v in event.items() if k not in ("event", "level", "timestamp")
        )
        print(f"{method}: {event.get('event')} {rest}", file=sys.stderr, flush=True)
    return event
