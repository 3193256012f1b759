"""What Prometheus finds on the pages of all processes: names of the real registries."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from engine.serving.telemetry.metrics import Metrics as EngineMetrics
from ingress.metrics import Metrics as IngressMetrics
from learner.loop.gauges import LoopGauges
from memory.edge.metrics import MemoryMetrics
from memory.memory import Memory
from memory.search.embedding import hashing
from memory.store.volatile import VolatileLog
from toolsvc.edge.metrics import Metrics as ServiceMetrics
from toolsvc.fleet.shared import SharedHosts
from toolsvc.host.host import Host
from toolsvc.plugin.tool import Tool
from toolsvc.sandbox.sandbox import Sandbox
from toolwright.tracing.exporter import Exporter
from toolwright.tracing.settings import Collector

OF_A_PROCESS = re.compile(r"_process_[a-z_]+$")
"""What Prometheus' client shows of every process."""


class Boxed(Tool):
    """A tool with a sandbox that nobody has started."""

    name = "boxed"

    def call(self, state: object, call: object) -> str:
        return ""

    def figures(self) -> Mapping[str, float]:
        none = SimpleNamespace(ready=0, creating=0, waiting=0, living=0, replaced=0)
        return Sandbox.figures(cast(Any, SimpleNamespace(statistics=none)))


@cache
def all_families() -> tuple[Metric, ...]:
    """Of engine, tool services, learner, memory and ingress, without what single tools count."""
    memory = MemoryMetrics()
    memory.look_at(Memory(VolatileLog(), hashing), lambda: 0)
    ingress = IngressMetrics()
    ingress.look_at(lambda: 0)
    registries = (
        EngineMetrics().registry,
        LoopGauges(max_staleness=0).registry,
        memory.registry,
        ingress.registry,
        _of_service(),
    )
    return (
        *(one for registry in registries for one in registry.collect()),
        *_of_fleet(),
        *_of_traces(),
    )


@cache
def all_names() -> frozenset[str]:
    """Of the families: counters without `_total`, histograms without `_bucket`."""
    return frozenset(family.name for family in all_families())


def _of_service() -> CollectorRegistry:
    tool = Boxed()
    metrics = ServiceMetrics([tool])
    metrics.look_at(Host([tool]))
    return metrics.registry


def _of_traces() -> Iterable[Metric]:
    for process in ("engine", "toolsvc", "learner"):
        exporter = Exporter(
            Collector(host="127.0.0.1", port=9, path="/", secure=False), process=process
        )
        yield from exporter.collect()
        exporter.close()


def _of_fleet() -> Iterable[Metric]:
    nobody = cast(Any, None)
    return asyncio.run(SharedHosts(nobody, nobody, nobody, (), nobody).metrics())
