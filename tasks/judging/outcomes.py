"""What a right or wrong answer is worth in VerlTool's tasks (arXiv:2509.01055, equations 6, 8,
12 and 13).

Pure. Whether an answer is right is for the other modules here to say.
"""

from __future__ import annotations

TOOL_PENALTY = -0.25
TOOL_BONUS = 0.1


def signed(correct: bool, *, well_formed: bool = True) -> float:
    """1 or -1, as for SQL, where a broken format is wrong whatever the query returns."""
    return 1.0 if correct and well_formed else -1.0


def with_tool_term(correct: bool, *, tool_used: bool, penalty: float = TOOL_PENALTY) -> float:
    """Mathematics: 1 or -1, and the penalty where no tool was used.

    Equation 6 as printed asks once more whether the answer is right where its text means the tool.
    """
    return signed(correct) + (0.0 if tool_used else penalty)


def deep_search(
    correct: bool, *, tool_called: bool, wrong: float = 0.0, bonus: float = TOOL_BONUS
) -> dict[str, float]:
    """Deep search: its parts, whose sum it is. A right answer is 1, a call of any tool the bonus.

    Equation 12 takes its term for the answer from equation 6, where a wrong one is -1; the released
    code gives 0, and so does this unless `wrong` says otherwise.
    """
    return {"answer": 1.0 if correct else wrong, "tool": bonus if tool_called else 0.0}


def solved(passed: bool, *, ended_normally: bool = True) -> float:
    """Software engineering: 1 where the trajectory ended normally and all its tests pass, else 0
    (equation 13)."""
    return 1.0 if passed and ended_normally else 0.0
