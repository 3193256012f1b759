"""The memory's Prometheus metrics: its size, what merges made of it, and how long answers take.

Sizes are read from the newest version when the page is fetched. Counting is thread-safe: merges
count in their thread, requests on the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from memory.memory import Memory
from memory.types import GroupMerged
from toolwright.rpc.errors import ServiceError

_PREFIX = "toolwright_memory"
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)


class MemoryMetrics:
    """One process's metrics, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            f"{_PREFIX}_request_seconds", "time of answered requests, waits included",
            ["method"], buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._errors = Counter(
            f"{_PREFIX}_errors", "failed requests", ["method", "reason"],
            registry=self.registry,
        )  # fmt: skip
        self._groups = Counter(
            f"{_PREFIX}_groups_merged",
            "groups merged, repeated ones included",
            registry=self.registry,
        )
        self._registered = Counter(
            f"{_PREFIX}_tools_registered",
            "tools registered under a node of the graph",
            registry=self.registry,
        )
        self._refused = Counter(
            f"{_PREFIX}_tools_refused",
            "tools refused by a guard or a check",
            registry=self.registry,
        )
        ProcessCollector(namespace=_PREFIX, registry=self.registry)

    def look_at(self, memory: Memory, waiting: Callable[[], int]) -> None:
        """Shows how large the memory is, and how many requests wait."""

        def gauge(name: str, text: str, now: Callable[[], float]) -> None:
            Gauge(f"{_PREFIX}_{name}", text, registry=self.registry).set_function(now)

        gauge("tools", "nodes of the newest version", lambda: len(memory.graph.by_id))
        gauge("edges", "edges of the newest version", lambda: len(memory.graph.edges))
        gauge("version", "number of changes so far", lambda: memory.graph.version)
        gauge("requests_waiting", "requests in threads, or waiting for one", waiting)

    @contextmanager
    def request(self, method: str) -> Iterator[None]:
        """Counts one request: its time if the block succeeds, else the reason of the failure."""
        began = time.perf_counter()
        try:
            yield
        except ServiceError as error:
            self._errors.labels(method, error.reason_name.lower()).inc()
            raise
        self._seconds.labels(method).observe(time.perf_counter() - began)

    def registered(self, count: int) -> None:
        """Tools that got under a node."""
        self._registered.inc(count)

    def merged(self, merged: GroupMerged) -> None:
        """What became of a group's work."""
        self._groups.inc()
        self.registered(len(merged.registered))
        self._refused.inc(len(merged.refused))
