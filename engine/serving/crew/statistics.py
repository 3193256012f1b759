"""Statistics of the workers, and their sums with those of the coordinator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.core.sampler.pool import SamplerPool
from engine.core.tools.link.counts import ServiceStatistics
from engine.core.tools.services import ToolServices


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatistics:
    """One worker now. Sums begin at its start."""

    samplers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """As `Fleet.statistics`."""
    tools: dict[str, ServiceStatistics] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    """Attempts that infrastructure ended, by stop reason."""

    def ended(self) -> WorkerStatistics:
        """The sums alone, of a worker that has ended."""
        idle = {"in_flight": 0, "queued": 0, "seconds_a_token": None}
        return replace(
            self,
            samplers={name: one | idle for name, one in self.samplers.items()},
            tools={
                name: replace(one, calls_in_flight=0, opens_waiting=0)
                for name, one in self.tools.items()
            },
        )

    def plus(self, other: WorkerStatistics) -> WorkerStatistics:
        """The sums of both as those of one worker."""
        return WorkerStatistics(
            samplers=samplers_in_all(self.samplers, [other]),
            tools=tools_in_all(self.tools, [other]),
            attempts=dict(attempts_in_all(self.attempts, [other])),
        )


def worker_statistics(
    pool: SamplerPool, tools: ToolServices, failures: Mapping[str, int]
) -> WorkerStatistics:
    """The statistics of this process."""
    return WorkerStatistics(
        samplers={name: dict(one) for name, one in pool.statistics().items()},
        tools=tools.statistics(),
        attempts=dict(failures),
    )


def samplers_in_all(
    own: Mapping[str, Mapping[str, Any]], workers: Iterable[WorkerStatistics]
) -> dict[str, dict[str, Any]]:
    """As `Fleet.statistics`. own: the coordinator's, which knows the servers that are up."""
    found = {name: dict(one) for name, one in own.items()}
    for worker in workers:
        for name, one in worker.samplers.items():
            if name not in found:
                found[name] = dict(one)
                continue
            into = found[name]
            for key in ("in_flight", "queued", "received"):
                into[key] += one[key]
            into["seconds_a_token"] = one["seconds_a_token"] or into["seconds_a_token"]
            into["failures"] = dict(Counter(into["failures"]) + Counter(one["failures"]))
    return found


def tools_in_all(
    own: Mapping[str, ServiceStatistics], workers: Iterable[WorkerStatistics]
) -> dict[str, ServiceStatistics]:
    """The coordinator knows the open sessions of all; the workers count their calls."""
    found = dict(own)
    for worker in workers:
        for name, one in worker.tools.items():
            before = found.get(name)
            if before is None:
                found[name] = one
                continue
            found[name] = replace(
                before,
                calls_in_flight=before.calls_in_flight + one.calls_in_flight,
                opens_waiting=before.opens_waiting + one.opens_waiting,
                calls=before.calls + one.calls,
                retries=Counter(before.retries) + Counter(one.retries),
                failures=Counter(before.failures) + Counter(one.failures),
                seconds_away=before.seconds_away + one.seconds_away,
            )
    return found


def attempts_in_all(own: Mapping[str, int], workers: Iterable[WorkerStatistics]) -> Counter[str]:
    """Attempts that infrastructure ended, by stop reason."""
    found = Counter(own)
    for worker in workers:
        found.update(worker.attempts)
    return found
