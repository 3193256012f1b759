"""Workloads of agents: turns, tokens and tool times of each trajectory.

All have 43 turns and 142,000 tokens in the median (vLLM's AgentX traffic). Tokens, cache and rates
are divided by one number, which changes no time and no ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

SCALE = 16
"""Tokens of real traffic that one token stands for."""
PROMPT, ACTION, LENGTH, TURNS = 20_000, 444, 142_000, 43
ANSWER = (LENGTH - PROMPT) / TURNS - ACTION
"""Tokens of a tool's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledTurn:
    """One action and its tool call."""

    action: int
    """Tokens of the action."""
    tool_s: float
    """Seconds of the call."""
    answer: int
    """Tokens of the tool's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledWorkload:
    """Distributions of turns, tokens and tool times. Each sigma belongs to a lognormal."""

    name: str
    turns_sigma: float
    answer_sigma: float
    tool_s: float
    """Median seconds of a tool call."""
    tool_sigma: float

    def trajectory(self, seed: int, number: int) -> tuple[int, list[ModelledTurn]]:
        """(tokens of the prompt, turns)."""
        dice = Random(f"{seed}:{number}")
        turns = round(TURNS * dice.lognormvariate(0.0, self.turns_sigma))
        return PROMPT // SCALE, [
            ModelledTurn(
                action=max(1, round(ACTION / SCALE * dice.lognormvariate(0.0, 0.5))),
                tool_s=self.tool_s * dice.lognormvariate(0.0, self.tool_sigma),
                answer=max(1, round(ANSWER / SCALE * dice.lognormvariate(0.0, self.answer_sigma))),
            )
            for _ in range(min(max(turns, 4), 4 * TURNS))
        ]


WORKLOADS = {
    one.name: one
    for one in (
        ModelledWorkload(
            name="steady", turns_sigma=0.1, answer_sigma=0.3, tool_s=2.0, tool_sigma=0.5
        ),
        ModelledWorkload(
            name="slow-tools", turns_sigma=0.3, answer_sigma=0.5, tool_s=30.0, tool_sigma=1.0
        ),
        # Never used while the controller's constants were chosen.
        ModelledWorkload(
            name="uneven", turns_sigma=0.6, answer_sigma=1.0, tool_s=8.0, tool_sigma=1.5
        ),
    )
}
