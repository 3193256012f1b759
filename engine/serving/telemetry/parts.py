"""Counters of the engine's parts, exported to Prometheus every few seconds.

The parts keep plain numbers and know no Prometheus. This module knows the numbers' names and not
the parts. It is called on the event loop; a scrape reads the last export from a thread of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge


class ToolStatistics(Protocol):
    """Statistics of one tool service; see `engine.core.tools.link.counts.ServiceStatistics`."""

    @property
    def open_sessions(self) -> int: ...
    @property
    def calls_in_flight(self) -> int: ...
    @property
    def opens_waiting(self) -> int: ...
    @property
    def retries(self) -> Mapping[str, int]: ...
    @property
    def failures(self) -> Mapping[str, int]: ...
    @property
    def seconds_away(self) -> float: ...


class FollowedCounter:
    """A Prometheus counter that follows a total of another owner."""

    def __init__(
        self, name: str, text: str, labels: tuple[str, ...], registry: CollectorRegistry
    ) -> None:
        self._counter = Counter(name, text, labels, registry=registry)
        self._labelled = bool(labels)
        self._seen: dict[tuple[str, ...], float] = {}

    def follow(self, total: float, *labels: str) -> None:
        """Sets the total. A total never falls, unless its owner is new: then counting goes on from
        there."""
        before = self._seen.get(labels, 0.0)
        self._seen[labels] = total
        counter = self._counter.labels(*labels) if self._labelled else self._counter
        counter.inc(max(total - before, 0.0))


class PartMetrics:
    """Samplers, tool services, attempts, journal and delivery."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def total(name: str, text: str, *labels: str) -> FollowedCounter:
            return FollowedCounter(name, text, labels, registry)

        self._sampler_up = gauge(
            "toolwright_engine_sampler_up", "1 while in use, 0 while set aside", "sampler"
        )
        self._sampler_in_flight = gauge(
            "toolwright_engine_sampler_in_flight", "requests in flight", "sampler"
        )
        self._sampler_queued = gauge(
            "toolwright_engine_sampler_queued_tokens",
            "expected tokens of the requests in flight",
            "sampler",
        )
        self._sampler_pace = gauge(
            "toolwright_engine_sampler_seconds_a_token",
            "recent seconds a token of one stream",
            "sampler",
        )
        self._sampler_tokens = total(
            "toolwright_engine_sampler_tokens", "tokens received", "sampler"
        )
        self._sampler_failures = total(
            "toolwright_engine_sampler_failures", "requests that failed", "sampler", "reason"
        )
        self._tool_sessions = gauge("toolwright_engine_tool_sessions", "open sessions", "service")
        self._tool_calls = gauge(
            "toolwright_engine_tool_calls_in_flight", "calls in flight", "service"
        )
        self._sampler_cache = gauge(
            "toolwright_engine_sampler_cache_use", "share that running requests hold", "sampler"
        )
        self._limit = gauge(
            "toolwright_engine_limit", "trajectories that may be in flight, if that adapts"
        )
        self._cache_waiting = gauge(
            "toolwright_engine_waiting_for_cache", "actions that wait for room in the caches"
        )
        self._lost = total(
            "toolwright_engine_cache_lost_tokens", "computed again, as a server had dropped them"
        )
        self._retractions = total(
            "toolwright_engine_sampler_retractions", "requests that servers sent back to the queue"
        )
        self._tool_waiting = gauge(
            "toolwright_engine_tool_opens_waiting", "sessions that wait for room", "service"
        )
        self._tool_retries = total(
            "toolwright_engine_tool_retries", "requests retried", "service", "reason"
        )
        self._tool_failures = total(
            "toolwright_engine_tool_failures",
            "requests given up, each of which ended an attempt",
            "service",
            "reason",
        )
        self._tool_away = total(
            "toolwright_engine_tool_away_seconds", "seconds without an expected answer", "service"
        )
        self._attempts = total(
            "toolwright_engine_attempts_failed", "attempts that infrastructure ended", "reason"
        )
        self._passed_over = gauge(
            "toolwright_engine_tasks_passed_over", "tasks that cannot run, since the run began"
        )
        self._dropped = gauge(
            "toolwright_engine_dropped_groups", "groups too old or too large, since the run began"
        )
        self._turned_away = gauge(
            "toolwright_engine_turned_away_groups", "groups without a signal, since the run began"
        )
        self._old_tokens = total(
            "toolwright_engine_old_tokens", "tokens sent without loss because they were too old"
        )
        self._full = gauge(
            "toolwright_engine_journal_full", "1 while the disk is full and nothing is admitted"
        )
        self._commit = gauge(
            "toolwright_engine_journal_commit_seconds", "seconds of the last transaction"
        )
        self._commits = total(
            "toolwright_engine_journal_commits", "transactions, each with one flush of the disk"
        )
        self._free = gauge(
            "toolwright_engine_disk_free_bytes", "free space of the run folder's disk"
        )
        self._backlog = gauge(
            "toolwright_engine_journal_backlog", "events that are not durable yet"
        )

    def samplers(self, statistics: Mapping[str, Mapping[str, Any]]) -> int:
        """Exports `SamplerPool.statistics`, by server. Returns the tokens of all servers."""
        for name, one in statistics.items():
            self._sampler_up.labels(name).set(one["up"])
            self._sampler_in_flight.labels(name).set(one["in_flight"])
            self._sampler_queued.labels(name).set(one["queued"])
            if one.get("cache_use") is not None:
                self._sampler_cache.labels(name).set(one["cache_use"])
            if one["seconds_a_token"] is not None:
                self._sampler_pace.labels(name).set(one["seconds_a_token"])
            self._sampler_tokens.follow(one["received"], name)
            for reason, count in one["failures"].items():
                self._sampler_failures.follow(count, name, reason)
        return sum(one["received"] for one in statistics.values())

    def concurrency(self, *, limit: int, waiting: int, lost: int, retractions: int) -> None:
        """Exports the state of `engine.max_concurrent = "auto"`. lost: tokens that samplers
        computed again."""
        self._limit.set(limit)
        self._cache_waiting.set(waiting)
        self._lost.follow(lost)
        self._retractions.follow(retractions)

    def tools(self, statistics: Mapping[str, ToolStatistics]) -> None:
        """Exports the statistics of each tool service, by its name."""
        for name, one in statistics.items():
            self._tool_sessions.labels(name).set(one.open_sessions)
            self._tool_calls.labels(name).set(one.calls_in_flight)
            self._tool_waiting.labels(name).set(one.opens_waiting)
            self._tool_away.follow(one.seconds_away, name)
            for reason, count in one.retries.items():
                self._tool_retries.follow(count, name, reason)
            for reason, count in one.failures.items():
                self._tool_failures.follow(count, name, reason)

    def attempts(self, failures: Mapping[str, int]) -> None:
        """Exports attempts that infrastructure ended, by stop reason."""
        for reason, count in failures.items():
            self._attempts.follow(count, reason)

    def groups(self, *, passed_over: int, dropped: int, turned_away: int, old_tokens: int) -> None:
        """Exports skipped tasks, groups that are too old or without a signal, and old tokens in
        other groups."""
        self._passed_over.set(passed_over)
        self._dropped.set(dropped)
        self._turned_away.set(turned_away)
        self._old_tokens.follow(old_tokens)

    def journal(
        self, *, full: bool, backlog: int, commit_s: float, commits: int, free: int
    ) -> None:
        """Exports the journal's state. commit_s: duration of the last transaction, in seconds.
        commits: transactions since the start. free: bytes of the disk."""
        self._commits.follow(commits)
        self._free.set(free)
        self._full.set(full)
        self._commit.set(commit_s)
        self._backlog.set(backlog)
