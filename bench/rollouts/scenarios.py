"""The workloads of VerlTool's table 2 (arXiv:2509.01055), as distributions.

The paper prints seconds alone: 87 and 66 (math), 111 and 91 (SQL), 193 and 98 (deep search), of
rollouts of at most 4, 5 and 5 turns on 8 H100. Turns are the paper's, and so are the longest times
of a tool (appendix F.6). The rest is chosen so that with seed 0 a batch-synchronous loop takes
about the paper's seconds, and that a loop without barriers can save a little more than the paper's
did. So a speed-up tells nothing of the paper's machine. What is measured is how much of what the
work allows the engine gets.

What the three differ in
- math: lengths make the time, and who is verbose is so in every turn.
- SQL: the same with queries of milliseconds. Slow trajectories are slow all along, so that
  barriers cost little.
- deep search: pages of half a minute come to anybody in any turn, and a barrier waits for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench.makespan.plan import ANSWER, Lognormal, Mix, Workload

TRAJECTORIES = 128
PACE = 4.0
CHUNK = 8
RATE = 40.0
"""Tokens a second of one stream, at the pace of the paper's seconds."""
_SHORTEST, _LONGEST = 32, 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """set: its column in the paper's table."""

    name: str
    set: str
    mix: Mix

    def workload(self, *, trajectories: int, pace: float, seed: int) -> Workload:
        """pace: times as fast as in the paper, tokens and tools alike."""
        tool = self.mix.tool_s
        faster = replace(
            tool, median=tool.median / pace, least=tool.least / pace, most=tool.most / pace
        )
        return Workload(
            trajectories=trajectories,
            chunk=CHUNK,
            rate=RATE * pace,
            seed=seed,
            mix=replace(self.mix, tool_s=faster),
        )


def _action(median: float, sigma: float, shared: float) -> Lognormal:
    return Lognormal(median=median, sigma=sigma, least=_SHORTEST, most=_LONGEST, shared=shared)


SCENARIOS: Mapping[str, Scenario] = {
    one.name: one
    for one in (
        Scenario(
            name="math",
            set="Math",
            mix=Mix(
                turns=(1, 4),
                action=_action(340, 0.3, 0.3),
                tool_s=Lognormal(median=0.3, sigma=1.0, least=0.02, most=10.0),
                answer=ANSWER,
            ),
        ),
        Scenario(
            name="sql",
            set="SQL",
            mix=Mix(
                turns=(1, 5),
                action=_action(400, 0.25, 0.3),
                tool_s=Lognormal(median=0.1, sigma=1.0, least=0.005, most=5.0),
                answer=ANSWER,
            ),
        ),
        Scenario(
            name="deepsearch",
            set="DeepSearch",
            mix=Mix(
                turns=(1, 5),
                action=_action(295, 0.4, 0.0),
                tool_s=Lognormal(median=2.0, sigma=1.0, least=0.3, most=30.0),
                answer=ANSWER,
            ),
        ),
    )
}
