"""The words of a run as it is read back: steps, evaluations, samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

WAYS = ("sampled", "greedy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step as the learner logged it; `values` has its finite numbers by metric name.

    reward_error: the commonest failure of the reward function; empty where none failed.
    worthless: why the step taught nothing, in the learner's words; empty where it taught something,
    and of a learner that did not write its reason. call_error: the commonest failure of a tool,
    "TOOL: SENTENCE"; empty where no call failed.
    """

    step: int
    values: Mapping[str, float] = field(default_factory=dict)
    lineage: str = ""
    worthless: str = ""
    call_error: str = ""
    reward_error: str = ""

    @property
    def reward(self) -> float | None:
        """The batch's mean reward; None where all of it was masked, or it was no number."""
        return self.values.get("reward")

    @property
    def taught(self) -> bool | None:
        """Whether something of the batch could be learnt; None where the line does not tell."""
        if "worthless_steps" in self.values:
            return self.values["worthless_steps"] == 0
        signal = self.values.get("groups_with_signal")
        return None if signal is None else signal > 0

    @property
    def masked_share(self) -> float | None:
        """Share of the batch's trajectories that are masked, 0 to 1."""
        masked, whole = self.values.get("masked"), self.values.get("trajectories")
        return masked / whole if masked is not None and whole else None

    @property
    def tokens_per_second(self) -> float | None:
        """Policy tokens of the batch over the seconds of the whole step."""
        length, count = self.values.get("response_length"), self.values.get("trajectories")
        seconds = self.values.get("step_s")
        return length * count / seconds if length is not None and count and seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One suite under one weight version. reward: the mean; success where rewards are 0 or 1.

    stderr: of that mean; None where the line has none. temperature: 0 is greedy; None: not told.
    parts: means of the reward's parts. rates: each over a denominator of its own. lowest, highest:
    of its rewards; None where not told.
    """

    suite: str
    step: int
    n: int
    reward: float
    lowest: float | None = None
    highest: float | None = None
    stderr: float | None = None
    temperature: float | None = None
    seconds: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One evaluated trajectory as text: (author, text) runs, in order."""

    suite: str
    step: int
    index: int
    reward: float
    stop_reason: str
    answers: tuple[str, ...] = ()
    segments: tuple[tuple[str, str], ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the metrics files of one run folder hold, each in the order of its steps.

    samples: of each suite those of the first and of the last version. imitation: steps of
    `learner sft`. remarks: what could not be read, a sentence each.
    """

    steps: tuple[Step, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    samples: tuple[Sample, ...] = ()
    imitation: tuple[Step, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def suites(self) -> tuple[str, ...]:
        """Names of the suites that were evaluated, in the order in which they came."""
        return tuple(dict.fromkeys(e.suite for e in self.evaluations))

    def curve(self, suite: str) -> tuple[Evaluation, ...]:
        """A suite's evaluations, in the order of their steps."""
        return tuple(e for e in self.evaluations if e.suite == suite)


def way_of(suite: str, temperature: float | None) -> tuple[str, str]:
    """(questions, way): a suite NAME-sampled or NAME-greedy asks NAME in that way, one of another
    name in the way that its temperature says."""
    for way in WAYS:
        if suite.endswith(f"-{way}") and len(suite) > len(way) + 1:
            return suite.removesuffix(f"-{way}"), way
    return suite, "greedy" if temperature == 0 else "sampled"
