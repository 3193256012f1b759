"""The loads of `bench engine`, by name.

steady: every trajectory makes a call each few tokens, with a tool that does nothing.
mixed: turns, lengths and tool times are drawn, and all trajectories begin at the same instant.

math, sql and deepsearch are the workloads of VerlTool's table 2 (arXiv:2509.01055). The paper
prints seconds alone: 87 and 66 (math), 111 and 91 (SQL), 193 and 98 (deep search), for rollouts of
at most 4, 5 and 5 turns on 8 H100. Turns and the longest times of a tool (appendix F.6) are the
paper's. The rest is chosen for seed 0: a loop with barriers takes about the paper's seconds, and a
loop without barriers can save a little more than the paper's did. So a speed-up says nothing about
the paper's machine. It says how much of what the work allows the engine gets.

- math: long actions take the time. A verbose trajectory is verbose in every turn.
- sql: as math, with queries of milliseconds. Slow trajectories are slow in all turns, so barriers
  cost little.
- deepsearch: any call may take half a minute, and a barrier waits for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from bench.engine.plan import Lognormal, Mix, Work

CALLS = 20
"""Calls of a trajectory of the steady load."""
EVERY = 20
"""Tokens from one call to the next, in the steady load."""
ANSWER = Lognormal(median=64, sigma=0.6, least=28, most=256)

Beside = Literal["bare", "barriers"]
"""Loop that plays the same plans before the engine: each trajectory at its own pace, or turn by
turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """A load and its defaults."""

    name: str
    what: str
    mix: Mix
    trajectories: int
    rate: float
    """Tokens a second of one stream, at pace 1."""
    chunk: int = 8
    """Tokens in a chunk of a stream."""
    places: int | None = None
    """Trajectories in flight; None for all."""
    pace: float = 1.0
    """Factor by which tokens and tools are faster."""
    beside: Beside | None = None
    column: str = ""
    """Name of the load in the paper's table."""

    def work(
        self, *, trajectories: int, chunk: int, rate: float, pace: float, seed: int, jitter: float
    ) -> Work:
        """The work of this load. pace: factor by which tokens and tools are faster than at `rate`
        and in the mix."""
        return Work(
            trajectories=trajectories,
            mix=replace(self.mix, tool_s=self.mix.tool_s.times(1 / pace)),
            rate=rate * pace,
            chunk=chunk,
            seed=seed,
            jitter=jitter,
        )


def steady(every: int = EVERY) -> EngineLoad:
    """A call each `every` tokens."""
    return EngineLoad(
        name="steady",
        what=f"{CALLS} calls a trajectory, one each {every} tokens",
        mix=Mix(
            turns=(CALLS + 1, CALLS + 1),
            action=Lognormal.fixed(every),
            tool_s=Lognormal.fixed(0.0),
            answer=Lognormal.fixed(20),
        ),
        trajectories=256,
        rate=50.0,
        chunk=1,
        places=64,
    )


def _verltool(
    name: str,
    column: str,
    turns: int,
    *,
    median: float,
    sigma: float,
    shared: float,
    tool: Lognormal,
) -> EngineLoad:
    """A workload of the paper. median, sigma, shared: of the tokens of an action."""
    action = Lognormal(median=median, sigma=sigma, least=32, most=2048, shared=shared)
    return EngineLoad(
        name=name,
        what=f"VerlTool's {column} rollouts, beside a loop with barriers",
        mix=Mix(turns=(1, turns), action=action, tool_s=tool, answer=ANSWER),
        trajectories=128,
        rate=40.0,
        pace=4.0,
        beside="barriers",
        column=column,
    )


LOADS: Mapping[str, EngineLoad] = {
    one.name: one
    for one in (
        steady(),
        EngineLoad(
            name="mixed",
            what="1 to 8 turns, all at once, beside a bare loop",
            mix=Mix(
                turns=(1, 8),
                action=Lognormal(median=72, sigma=0.6, least=32, most=288),
                tool_s=Lognormal(median=0.5, sigma=1.0, least=0.01, most=15.0),
                answer=ANSWER,
            ),
            trajectories=1024,
            rate=25.0,
            beside="bare",
        ),
        _verltool(
            "math", "Math", 4, median=340, sigma=0.3, shared=0.3,
            tool=Lognormal(median=0.3, sigma=1.0, least=0.02, most=10.0),
        ),
        _verltool(
            "sql", "SQL", 5, median=400, sigma=0.25, shared=0.3,
            tool=Lognormal(median=0.1, sigma=1.0, least=0.005, most=5.0),
        ),
        _verltool(
            "deepsearch", "DeepSearch", 5, median=295, sigma=0.4, shared=0.0,
            tool=Lognormal(median=2.0, sigma=1.0, least=0.3, most=30.0),
        ),
    )
}  # fmt: skip
