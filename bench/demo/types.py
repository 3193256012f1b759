"""The words of the demonstration: what was measured, where, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.demo.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One suite under one weight version. `success` is the mean reward, which is 0 or 1 each."""

    suite: str
    step: int
    n: int
    success: float
    stderr: float
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One trajectory as text: (author, text) runs, in order."""

    suite: str
    step: int
    index: int
    reward: float
    stop_reason: str
    answers: tuple[str, ...]
    segments: tuple[tuple[str, str], ...]
    timings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One training step as the learner logged it; `values` by metric name."""

    step: int
    reward: float
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def tokens_per_second(self) -> float | None:
        """Policy tokens of the batch over the seconds of the whole step."""
        try:
            tokens = self.values["response_length"] * self.values["trajectories"]
            return tokens / self.values["step_s"]
        except (KeyError, ZeroDivisionError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What one run folder holds, each in the order of its steps."""

    steps: tuple[Step, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    samples: tuple[Sample, ...] = ()

    def at(self, suite: str, step: int) -> Evaluation | None:
        """The evaluation of a suite at a step."""
        for evaluation in self.evaluations:
            if (evaluation.suite, evaluation.step) == (suite, step):
                return evaluation
        return None

    def curve(self, suite: str) -> tuple[Evaluation, ...]:
        """A suite's evaluations, in the order of their steps."""
        return tuple(e for e in self.evaluations if e.suite == suite)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One run: a seed's, or the control's."""

    seed: int
    control: bool
    last_step: int
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A mean success and its standard error."""

    value: float
    stderr: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Before and after training on the same `n` questions."""

    n: int
    sampled_before: Score
    sampled_after: Score
    greedy_before: Score
    greedy_after: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """A process for the report's table."""

    name: str
    command: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything that the report shows."""

    subject: Subject
    runs: tuple[Trained, ...]
    control: Trained | None
    seconds: Mapping[str, float]
    versions: Mapping[str, str]
    processes: tuple[ProcessRow, ...]
    settings: Mapping[str, Any]
    peak_memory: int
    started: str
