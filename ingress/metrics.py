"""Numbers of one ingress process for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

_PREFIX = "toolwright_ingress"

Verified = Literal["same", "history", "tail", "refused"]
"""Result of a second rendering of a call, as a whole. same: its ids are the recorded ones. history:
the new messages have the same ids, and those before them differ, as when the template leaves
thoughts out. tail: the new messages have other ids. refused: the template refuses the whole."""


class Metrics:
    """One process's metrics, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            f"{_PREFIX}_requests", "answered, by route", ["route", "status"],
            registry=self.registry,
        )  # fmt: skip
        self._verified = Counter(
            f"{_PREFIX}_verified", "calls that were rendered again", ["found"],
            registry=self.registry,
        )  # fmt: skip
        ProcessCollector(namespace=_PREFIX, registry=self.registry)

    def verified(self, found: Verified) -> None:
        """Counts a call that was rendered again."""
        self._verified.labels(found).inc()

    def look_at(self, in_flight: Callable[[], int]) -> None:
        """Shows the number of calls in flight."""
        gauge = Gauge(f"{_PREFIX}_in_flight", "calls not answered yet", registry=self.registry)
        gauge.set_function(in_flight)
