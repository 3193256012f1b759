"""What a trajectory of the mathematics task answered, and what that is worth. Pure, linear in time.

VerlTool, arXiv:2509.01055, equation 6: the answer's 1 or -1, and a term for the tool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tasks.judging import outcomes
from toolwright.reading.answers import last_box

Condition = Literal["tool_used", "match"]


def boxed(texts: Sequence[str]) -> str | None:
    """The answer in what a policy wrote, turn by turn: the last box of the last turn that has one.
    None without a box; an empty one is an answer, and a wrong one."""
    return next((box for text in reversed(texts) if (box := last_box(text)) is not None), None)


def math_reward(
    *, correct: bool, tool_used: bool, condition: Condition = "tool_used", penalty: float
) -> dict[str, float]:
    """Its parts, whose sum it is: `accuracy`, and `tool`, which is the penalty or 0.

    Equation 6 as printed takes the tool's term from the answer as well ("match": 1 or -1.25); its
    text means whether a tool was used ("tool_used": 1, 0.75, -1 or -1.25).
    """
    free = tool_used if condition == "tool_used" else correct
    accuracy = outcomes.signed(correct)
    whole = outcomes.with_tool_term(correct, tool_used=free, penalty=penalty)
    return {"accuracy": accuracy, "tool": whole - accuracy}
