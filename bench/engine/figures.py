"""Shares and delays of trajectories, from the stamps of a run. Pure.

The stamps come from three processes with one clock. The sampler stamps the read of a request and
the write of a stop. The tool stamps its begin and its end. The engine stamps the begin of
admission.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.engine.plan import TrajectoryPlan, Work
from bench.engine.processes.sampler import Stamp

Span = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One trajectory in seconds from the start. All time outside of `generate` and `tool` is spent
    in the engine."""

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
        """Seconds from each stop written by the sampler until the tool began."""
        return [
            tool[0] - wrote[1] for wrote, tool in zip(self.generate[:-1], self.tool, strict=True)
        ]

    @property
    def resume(self) -> list[float]:
        """Seconds from each answer of the tool until the sampler read the next request."""
        return [
            next_[0] - tool[1] for tool, next_ in zip(self.tool, self.generate[1:], strict=True)
        ]


def bars(
    plans: Sequence[TrajectoryPlan],
    work: Work,
    began_ns: int,
    stamps: Iterable[Stamp],
    tools: Mapping[tuple[int, int], Span],
) -> list[Bar]:
    """A bar for each trajectory whose stamps are complete. tools: begin and end of the call of
    (trajectory, turn), in seconds of the clock of `stamps`. The last stamps of a turn count if the
    engine repeated it."""
    wrote = {(number, turn): (read, written) for number, turn, read, written in stamps}
    start = began_ns / 1e9
    found = []
    for plan in plans:
        keys = [(plan.number, turn) for turn in range(len(plan.turns))]
        if not all(key in wrote for key in keys) or not all(key in tools for key in keys[:-1]):
            continue
        found.append(
            Bar(
                number=plan.number,
                generate=tuple(
                    (wrote[key][0] / 1e9 - start, wrote[key][1] / 1e9 - start) for key in keys
                ),
                tool=tuple((tools[key][0] - start, tools[key][1] - start) for key in keys[:-1]),
                planned_generate_s=sum(
                    work.action_seconds(turn.action_tokens) for turn in plan.turns
                ),
                planned_tool_s=sum(turn.tool_ms for turn in plan.turns) / 1000,
            )
        )
    return found


def shares(chosen: Sequence[Bar]) -> dict[str, float]:
    """Mean seconds of at least one trajectory, by where they are spent. `generate` and `tool` are
    as planned; `generate_late` and `tool_late` are above the plan."""

    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(chosen)

    planned = mean(bar.planned_generate_s for bar in chosen)
    slept = mean(bar.planned_tool_s for bar in chosen)
    return {
        "opening": mean(bar.begin for bar in chosen),
        "generate": planned,
        "generate_late": mean(_length(bar.generate) for bar in chosen) - planned,
        "dispatch": mean(sum(bar.dispatch) for bar in chosen),
        "tool": slept,
        "tool_late": mean(_length(bar.tool) for bar in chosen) - slept,
        "resume": mean(sum(bar.resume) for bar in chosen),
    }


def place_waits(chosen: Sequence[Bar], places: int) -> list[float]:
    """Seconds from the k-th end of a trajectory until the first request of the trajectory that took
    its place. Empty if each trajectory has a place."""
    ends = sorted(bar.end for bar in chosen)
    begins = sorted(bar.begin for bar in chosen)[places:]
    return [begin - end for begin, end in zip(begins, ends, strict=False)]


def _length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)
