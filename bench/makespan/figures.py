"""What the stamps of a run come to: where the time of each trajectory went, and how late each
step was. Pure.

A trajectory's stamps come from three processes with one clock: the sampler read its request and
wrote its stop, the tool had its call and left it, and the engine began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles

from bench.makespan.plan import Plan, Workload
from bench.makespan.sampler import Stamp
from engine.serving.telemetry.lag import quantile

Span = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One trajectory in seconds from the start; whatever is neither in `generate` nor in `tool` it
    waited for the engine. `ideal_end`: from its first request, had nobody been late."""

    number: int
    generate: tuple[Span, ...]
    tool: tuple[Span, ...]
    planned_generate_s: float
    planned_tool_s: float

    @property
    def begin(self) -> float:
        return self.generate[0][0]

    @property
    def end(self) -> float:
        return self.generate[-1][1]

    @property
    def dispatch(self) -> list[float]:
        """Seconds from each stop written by the sampler until the tool had the call."""
        return [tool[0] - said[1] for said, tool in zip(self.generate[:-1], self.tool, strict=True)]

    @property
    def resume(self) -> list[float]:
        """Seconds from each answer of the tool until the sampler had the next request."""
        return [said[0] - tool[1] for tool, said in zip(self.tool, self.generate[1:], strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Where the time of trajectories goes, seconds each on average. `late`: over the plan."""

    opening: float
    generate: float
    generate_late: float
    dispatch: float
    tool: float
    tool_late: float
    resume: float


def bars(
    plans: Sequence[Plan],
    workload: Workload,
    began_ns: int,
    stamps: Iterable[Stamp],
    tools: Mapping[tuple[int, int], Span],
) -> list[Bar]:
    """One each for the trajectories of which all stamps are there. `tools`: when the call of
    (trajectory, turn) came in and left, s of the clock of `stamps`. The last stamps count where a
    turn was asked for again."""
    said = {(number, turn): (read, written) for number, turn, read, written in stamps}
    start = began_ns / 1e9
    found = []
    for plan in plans:
        keys = [(plan.number, turn) for turn in range(len(plan.turns))]
        if not all(key in said for key in keys) or not all(key in tools for key in keys[:-1]):
            continue
        found.append(
            Bar(
                number=plan.number,
                generate=tuple(
                    (said[key][0] / 1e9 - start, said[key][1] / 1e9 - start) for key in keys
                ),
                tool=tuple((tools[key][0] - start, tools[key][1] - start) for key in keys[:-1]),
                planned_generate_s=sum(
                    workload.action_seconds(turn.action_tokens) for turn in plan.turns
                ),
                planned_tool_s=sum(turn.tool_ms for turn in plan.turns) / 1000,
            )
        )
    return found


def shares(chosen: Sequence[Bar]) -> Shares:
    """Of at least one bar."""

    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(chosen)

    generate, tool = mean(map(_generate_s, chosen)), mean(map(_tool_s, chosen))
    planned = mean(bar.planned_generate_s for bar in chosen)
    slept = mean(bar.planned_tool_s for bar in chosen)
    return Shares(
        opening=mean(bar.begin for bar in chosen),
        generate=planned,
        generate_late=generate - planned,
        dispatch=mean(sum(bar.dispatch) for bar in chosen),
        tool=slept,
        tool_late=tool - slept,
        resume=mean(sum(bar.resume) for bar in chosen),
    )


def place_waits(chosen: Sequence[Bar], places: int) -> list[float]:
    """Seconds from the k-th end of a trajectory until the first request of the one that took its
    place; none where all had a place from the start."""
    ends = sorted(bar.end for bar in chosen)
    begins = sorted(bar.begin for bar in chosen)[places:]
    return [begin - end for begin, end in zip(begins, ends, strict=False)]


def percentiles(seconds: Sequence[float]) -> dict[str, float] | None:
    """p50 and p99 in ms; None of fewer than two values."""
    if len(seconds) < 2:
        return None
    cuts = quantiles(seconds, n=100, method="inclusive")
    return {"p50": 1e3 * cuts[49], "p99": 1e3 * cuts[98]}


def lag_ms(counts: Sequence[int]) -> dict[str, float]:
    """p50, p99 and worst of an event loop's lag, ms; counts by bucket of
    `engine.serving.telemetry.lag.BOUNDS`."""
    return {
        name: 1e3 * quantile(counts, share)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("worst", 1.0))
    }


def _generate_s(bar: Bar) -> float:
    return sum(end - begin for begin, end in bar.generate)


def _tool_s(bar: Bar) -> float:
    return sum(end - begin for begin, end in bar.tool)
