"""The state of a run: one record that the followers fill and the screen shows.

None is an unknown value, which the screen leaves out. The functions here are pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from console.record.types import Evaluation, Step, way_of
from toolwright.page.text import plain
from toolwright.text.figures import compact

REWARDS = 48
"""Number of the newest steps' rewards, as a row of blocks."""
MOST_SUITES = 4
BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(slots=True, kw_only=True)
class Status:
    """stage: in words. steps: of the stage; 0 without steps. newest: the newest steps' lines.

    evaluations: the newest of each suite. doing: what each process does now, by its name.
    left_s: seconds until the stage is over. memory: bytes of all processes. stage_at: unix seconds
    of its start; None without a record of it. before_s: duration of the earlier stages.
    """

    stage: str = "starting"
    step: int = 0
    steps: int = 0
    newest: list[Step] = field(default_factory=list)
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    tokens_per_second: float | None = None
    calls_per_second: float | None = None
    doing: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    left_s: float | None = None
    memory: int = 0
    stage_at: float | None = None
    before_s: float = 0.0

    def enter(self, stage: str, now: float) -> None:
        """The next stage, which has made no step yet; now: unix seconds."""
        if self.stage_at is not None:
            self.before_s += max(0.0, now - self.stage_at)
        self.stage, self.stage_at = stage, now
        self.step = self.steps = 0

    def ages(self, now: float) -> tuple[float, float] | None:
        """Seconds of the stage and of the run, its pauses left out; None where not known."""
        if self.stage_at is None:
            return None
        stage = max(0.0, now - self.stage_at)
        return stage, self.before_s + stage

    def forget_pace(self) -> None:
        """Nothing is known of how fast it goes, or how long it takes."""
        self.tokens_per_second = self.calls_per_second = self.left_s = None

    @property
    def last(self) -> Step:
        """The newest step; an empty one before the first."""
        return self.newest[-1] if self.newest else Step(step=0)

    @property
    def rewards(self) -> list[float]:
        """Rewards of the newest steps."""
        return [step.reward for step in self.newest[-REWARDS:] if step.reward is not None]


LONGEST_LINE = 160
"""Characters of a line in a log; `toolwright status` has all fields."""


def fields(status: Status) -> list[tuple[str, str]]:
    """(name, value) of what is known now, in the order of the view."""
    last = status.last
    found = []
    if status.steps:
        found.append(("step", f"{status.step}/{status.steps}"))
    if last.reward is not None:
        found.append(("reward", compact(last.reward, 2)))
    found += success(status)
    if status.tokens_per_second is not None:
        found.append(("tokens/s", f"{status.tokens_per_second:,.0f}"))
    if status.calls_per_second is not None:
        found.append(("calls/s", f"{status.calls_per_second:,.1f}"))
    if "staleness_mean" in last.values:
        found.append(("staleness", f"{last.values['staleness_mean']:.2f}"))
    if last.masked_share is not None:
        found.append(("masked", f"{last.masked_share:.0%}"))
    if status.memory:
        found.append(("memory", f"{status.memory / 2**30:.1f} GiB"))
    if status.left_s:
        found.append(("left", f"about {duration(status.left_s)}"))
    return found


def success(status: Status) -> list[tuple[str, str]]:
    """(questions, newest mean reward of each way), the first MOST_SUITES of them."""
    found: dict[str, list[str]] = {}
    for e in status.evaluations.values():
        name, way = way_of(e.suite, e.temperature)
        found.setdefault(name, []).append(f"{way} {compact(e.reward, 2)} (step {e.step})")
    rows = [(plain(name, ""), ", ".join(ways)) for name, ways in found.items()]
    left_out = len(rows) - MOST_SUITES
    return rows[:MOST_SUITES] + ([("", f"and {left_out} other suites")] if left_out > 0 else [])


def line(status: Status, elapsed: float) -> str:
    """Stage, step, reward, the first suite and the time left, LONGEST_LINE characters at most."""
    known = dict(fields(status))
    words = [f"{name} {known[name]}" for name in ("step", "reward") if name in known]
    words += [" ".join(suite) for suite in success(status)[:1]]
    words += [f"left {known['left']}"] if "left" in known else []
    text = plain(f"[{elapsed:5.0f} s] " + ", ".join([status.stage, *words]), "")
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 3]}..."


def duration(seconds: float) -> str:
    """40 s, 3 min, 1 h 5 min, 2 d 3 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours = round(seconds / 3600)
    return (
        f"{minutes // 60} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
    )


def spark(values: Iterable[float]) -> str:
    """A row of blocks, the lowest value (or 0) to the highest (or 1)."""
    values = list(values)
    low, high = min([0.0, *values]), max([1.0, *values])
    return "".join(BLOCKS[min(7, int((value - low) / (high - low) * 8))] for value in values)
