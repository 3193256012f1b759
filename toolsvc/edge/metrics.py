"""The service's Prometheus metrics, and the text of the page that shows them.

Counters and histograms are counted as a `Watch` of the host. Gauges are read when the page is
fetched, so they cost nothing in between. With several hosts, each makes a page of its own, and
`merge` joins them with a label `host`. They are not summed: a restarted host begins at 0, and the
sum would look like a restart of the service.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from toolsvc.errors import Reason
from toolsvc.host.host import Host
from toolsvc.host.watch import Watch
from toolsvc.plugin.tool import Tool
from toolsvc.types import Recorded

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
_PREFIX = "toolwright_toolsvc_"
OTHER_TOOL = "other"
"""Label of a session's own tools: policies choose their names, and a label must have few values."""


class Metrics(Watch):
    """One process's metrics, in a registry of its own."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """`tools`: those that are served."""
        self._tools = {tool.name: tool for tool in tools}
        self.registry = CollectorRegistry()
        ProcessCollector(namespace=_PREFIX.removesuffix("_"), registry=self.registry)
        self._calls = Counter(
            f"{_PREFIX}calls", "calls with a result", ["tool", "outcome"],
            registry=self.registry,
        )  # fmt: skip
        self._refused = Counter(
            f"{_PREFIX}calls_refused", "refused calls", ["reason"],
            registry=self.registry,
        )  # fmt: skip
        self._leases = Counter(
            f"{_PREFIX}leases_ended", "sessions ended by their lease", registry=self.registry
        )
        self._queued = Histogram(
            f"{_PREFIX}queue_seconds", "wait of a call, for its turn and its backend", ["tool"],
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._run = Histogram(
            f"{_PREFIX}run_seconds", "run time of a call", ["tool"],
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        # `labels` costs more than counting does.
        self._by_outcome: dict[tuple[str, str], Counter] = {}
        self._by_tool: dict[str, tuple[Histogram, Histogram]] = {}

    def look_at(self, host: Host) -> None:
        """Shows how full the host and its tools are."""
        self.registry.register(_Gauges(host, tuple(self._tools.values())))

    def call_recorded(self, recorded: Recorded) -> None:
        error = recorded.result.error
        tool = recorded.tool if recorded.tool in self._tools else OTHER_TOOL
        outcome = "ok" if error is None else error.kind.name.lower()
        count = self._by_outcome.get((tool, outcome))
        if count is None:
            count = self._by_outcome[tool, outcome] = self._calls.labels(tool, outcome)
        count.inc()
        seconds = self._by_tool.get(tool)
        if seconds is None:
            seconds = self._by_tool[tool] = (self._queued.labels(tool), self._run.labels(tool))
        seconds[0].observe(recorded.queued)
        seconds[1].observe(recorded.run)

    def call_refused(self, reason: Reason) -> None:
        self._refused.labels(reason.value.lower()).inc()

    def lease_ended(self) -> None:
        self._leases.inc()


class _Gauges(Collector):
    def __init__(self, host: Host, tools: tuple[Tool, ...]) -> None:
        self._host = host
        self._tools = tools

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(f"{_PREFIX}sessions", "open sessions", len(self._host.session_ids))
        yield GaugeMetricFamily(
            f"{_PREFIX}calls_waiting_to_start",
            "calls that wait for an earlier call or a sandbox",
            self._host.waiting,
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}task_blob_bytes", "stored media of tasks", self._host.blob_bytes
        )
        families: dict[str, Metric] = {}
        for tool in self._tools:
            for name, value in tool.figures().items():
                family = families.setdefault(name, _family(name))
                family.add_sample(f"{_PREFIX}{name}", {"tool": tool.name}, value)
        yield from families.values()


def _family(name: str) -> Metric:
    """Metric family of a tool's own figure: a counter if the name ends like one."""
    if name.endswith("_total"):
        return CounterMetricFamily(f"{_PREFIX}{name.removesuffix('_total')}", "of the tool")
    return GaugeMetricFamily(f"{_PREFIX}{name}", "of the tool")


def merge(pages: Mapping[str, str]) -> list[Metric]:
    """Pages in Prometheus' text format, by host, as the families of one page."""
    families: dict[str, Metric] = {}
    for host, page in pages.items():
        for found in text_string_to_metric_families(page):
            family = families.setdefault(
                found.name, Metric(found.name, found.documentation, found.type)
            )
            for sample in found.samples:
                family.add_sample(sample.name, {**sample.labels, "host": host}, sample.value)
    return list(families.values())


def page_of(registry: CollectorRegistry) -> Callable[[], Awaitable[bytes]]:
    """Makes a function that renders the registry's current page."""

    async def page() -> bytes:
        return generate_latest(registry)

    return page


def page_of_all(families: Callable[[], Awaitable[list[Metric]]]) -> Callable[[], Awaitable[bytes]]:
    """As `page_of`, for families that must be gathered first."""

    async def page() -> bytes:
        gathered = CollectorRegistry(auto_describe=False)
        gathered.register(_Gathered(await families()))
        return generate_latest(gathered)

    return page


class _Gathered(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families
