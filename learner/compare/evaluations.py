"""What a run's evaluations came to: the mean reward of each suite, by the step that was measured.

A version that was evaluated twice, by another lineage after a kill, counts with its later line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learner.compare.lines import number, objects, remark, step_of

FILE = "evaluations.jsonl"
INTERVAL = 1.96
"""Standard errors to each side of a mean: 95 % of a normal distribution."""
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One suite at one step. stderr: of the mean; None where the line has none.

    n: rows that the policy was measured on. temperature: 0 is greedy; None where the line has none.
    """

    step: int
    reward: float
    stderr: float | None
    n: int
    temperature: float | None

    @property
    def half(self) -> float | None:
        """Half of the interval around the mean."""
        return None if self.stderr is None else INTERVAL * self.stderr

    @property
    def sampling(self) -> str:
        if self.temperature is None:
            return ""
        return f"temperature {self.temperature:g}" if self.temperature else "greedy"


Suites = Mapping[str, tuple[Measured, ...]]
"""By the suite's name, in the order of the steps."""


def read_evaluations(folder: Path) -> tuple[Suites, list[str]]:
    """(evaluations of the run, remarks). A run without any is empty, and nothing is said of it."""
    file = folder / FILE
    if not file.is_file():
        return {}, []
    found: dict[str, dict[int, Measured]] = {}
    broken = []
    for place, values in objects(file):
        line = _measured(values) if values is not None else None
        if line is None:
            broken.append(place)
        else:
            suite, measured = line
            found.setdefault(suite, {})[measured.step] = measured
    suites = {name: tuple(by_step[at] for at in sorted(by_step)) for name, by_step in found.items()}
    return suites, remark(file, broken, "evaluation")


def _measured(values: dict[str, Any]) -> tuple[str, Measured] | None:
    suite, at, reward = values.get("suite"), step_of(values), number(values.get("reward"))
    n, stderr = number(values.get("n")), number(values.get("stderr"))
    if not isinstance(suite, str) or len(suite) > LONGEST_NAME or at is None:
        return None
    if reward is None or n is None or n < 1 or (stderr is not None and stderr < 0):
        return None
    return suite, Measured(
        step=at,
        reward=reward,
        stderr=stderr,
        n=int(n),
        temperature=number(values.get("temperature")),
    )
