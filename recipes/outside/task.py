"""The calculator's questions in half of its wordings, and the reward of a chat.

Questions, operands and the held-out pairs are those of ../calculator/task.py. Eight wordings take
half of the steps that sixteen take.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks.worlds.questions import question_task, tasks_from
from toolwright.imports import load_file
from toolwright.types import StopReason, Task, Trajectory

CALCULATOR = Path(__file__).resolve().parents[1] / "calculator"
OF_EACH = 2
"""Wordings of an operation."""

_calculator = load_file(CALCULATOR / "task.py")
WORDINGS = {sign: texts[:OF_EACH] for sign, texts in _calculator.WORDINGS.items()}


def questions(seed: int, *, held: bool) -> Iterator[Any]:
    """Endless; held: of held-out pairs of operands."""
    return _calculator.questions(seed, held=held, known=WORDINGS)


def _task(one: Any, id: str, name: str) -> Task:
    return question_task(id, one.text, one.result, source=f"outside/{name}")


training = tasks_from("training", lambda seed: questions(seed, held=False), _task)
"""Endless: what the policy may learn from."""
heldout = tasks_from("heldout", lambda seed: questions(seed, held=True), _task)
"""Endless: operands that training never shows."""


def score(trajectory: Trajectory) -> dict[str, float]:
    """1 if the last message of the policy is the right number and nothing else."""
    last = str(trajectory.metadata["final_text"]).strip()
    ended = trajectory.stop_reason is StopReason.ANSWERED
    return {"correct": float(ended and last in trajectory.task.answers)}
