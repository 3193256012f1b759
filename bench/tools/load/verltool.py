"""`--grid verltool`: the load tests of VerlTool's tool server, beside its figures.

Figures of others are constants with their machine and source. They are no bound: theirs is another
server (HTTP, a new firejail for each call), mostly on another machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.tools.load.workloads import WORKLOADS
from bench.tools.plan import SweepPlan
from bench.tools.reading.rows import Mode, ToolRow

NAME = "verltool"
PAPER = "VerlTool paper (arXiv 2509.01055), a host with 8 H100"
TWO_CORES = "VerlTool's server, measured by us on 2 quiet cores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Figures of one load; None for a figure that was not published."""

    workload: str
    concurrency: int
    where: str
    average_s: float | None = None
    requests_per_s: float | None = None
    to_longest_sleep: float | None = None
    """Time until the last answer, as a multiple of the longest sleep."""
    failed: str = ""


PUBLISHED = (
    Measured(workload="hello", concurrency=256, where=PAPER, average_s=1.04),
    Measured(workload="hello", concurrency=256, where=TWO_CORES, average_s=6.7, requests_per_s=35),
    Measured(workload="hello", concurrency=4096, where=TWO_CORES, average_s=143, requests_per_s=28),
    Measured(
        workload="sleep", concurrency=1024, where=TWO_CORES, to_longest_sleep=4.5, failed="2-9 %"
    ),
)


def plans(*, bursts: int) -> Sequence[SweepPlan]:
    """Bursts of `hello`, and one burst of `sleep`, which takes its time."""
    return [
        SweepPlan(
            workloads=(WORKLOADS[name],),
            modes=(Mode.BURST,),
            concurrency=concurrency,
            bursts=times,
        )
        for name, concurrency, times in (
            ("hello", (64, 256, 1024, 4096), bursts),
            ("sleep", (256, 1024), 1),
        )
    ]


def beside(rows: Sequence[ToolRow]) -> Iterable[str]:
    """A line for our figures and a line for each of theirs."""
    for row in rows:
        yield f"{row.workload:8}{row.concurrency:>6}  {'here':55}{said(_ours(row))}"
        for one in PUBLISHED:
            if (one.workload, one.concurrency) == (row.workload, row.concurrency):
                yield f"{'':14}  {one.where:55}{said(one)}"


def _ours(row: ToolRow) -> Measured:
    ours = row.ours
    sleeps = ours.longest_sleep_s
    return Measured(
        workload=row.workload,
        concurrency=row.concurrency,
        where="here",
        average_s=ours.latency.avg / 1000,
        requests_per_s=ours.requests_per_s,
        to_longest_sleep=ours.makespan_s / sleeps if sleeps else None,
        failed=str(row.errors) if row.errors else "",
    )


def said(one: Measured) -> str:
    """The known figures in words."""
    words = []
    if one.average_s is not None:
        words.append(f"average {one.average_s:.3g} s")
    if one.requests_per_s is not None:
        words.append(f"{one.requests_per_s:,.0f} calls/s")
    if one.to_longest_sleep is not None:
        words.append(f"{one.to_longest_sleep:.2f} x the longest sleep")
    if one.failed:
        words.append(f"failed: {one.failed}")
    return ", ".join(words)
