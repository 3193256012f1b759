"""What came of a run: one word and why. Pure.

Two measurements decide where there are two: the first and the last evaluation of one suite. Else
the rewards of training do, the first fifth of the steps against the last one. What differs by less
than BOUND standard errors is unchanged. A run must have had a signal: without a group with a signal
no figure means anything. A run that ended without a signal, or with many such steps, does not count
as risen. Solved tasks are not such an end.

Standard errors of evaluations are those over questions, as the engine wrote them. Rewards that are
all equal have no error. Between 0 and 1 they get that of a share of (successes + 1) / (n + 2),
Laplace's rule of succession, so one answered question proves nothing. Both versions had the same
questions, so the error of the difference, the root of the sum of squares, is rather too large. That
of a fifth is the spread of its steps over the root of their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from console.record.types import Evaluation, Step
from toolwright.credit.collapse import collapse_of
from toolwright.credit.signal import varies

BOUND = 2.0
FIFTH = 5
FEWEST_STEPS = 10
"""Fewer say nothing of a trend."""
FRUITLESS = 4
"""Exit status of a learner that had nothing to learn from."""
UNTAUGHT = 2
"""Steps without a signal that are said, as long as others may follow."""


class Verdict(StrEnum):
    """The word, as summary.json has it."""

    ROSE = "rose"
    """More than BOUND standard errors."""
    FELL = "fell"
    """The same downwards."""
    UNCHANGED = "unchanged"
    """Measured twice, and not further apart than chance would have it."""
    NOTHING = "nothing to learn from"
    """No step had a group with a signal, or none had any more when the run ended."""
    COLLAPSED = "collapsed"
    """The policy's figures and its reward fell together, and stayed so to the end."""
    TOO_EARLY = "too early"
    """Not measured twice, and too few steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A mean and its standard error."""

    mean: float
    stderr: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """why: a sentence. by: the suite that was compared; empty where rewards of training were, and
    where nothing was. before, after: None where nothing was compared. since: the first of the
    steps that taught nothing, where earlier ones did; else 0."""

    verdict: Verdict
    why: str
    by: str = ""
    before: Score | None = None
    after: Score | None = None
    since: int = 0


def judge(
    steps: Sequence[Step],
    evaluations: Sequence[Evaluation] = (),
    *,
    planned: int | None = None,
    ended: int | None = None,
) -> Judgement:
    """The judgement of one run. evaluations: those of the suite that counts. planned: steps of the
    whole run. ended: its exit status; None while it runs, and without a record of it."""
    if not steps:
        why = "No step has been made."
        if planned == 0:
            why = "The policy was not trained: run.steps is 0, and evaluations say what it is."
        return Judgement(verdict=Verdict.TOO_EARLY, why=why)
    if reason := why_nothing(steps, planned=planned):
        return Judgement(verdict=Verdict.NOTHING, why=reason)
    if ended is not None and (reason := _why_no_more(steps, fruitless=ended == FRUITLESS)):
        since = steps[-untaught(steps)].step
        return Judgement(verdict=Verdict.NOTHING, why=reason, since=since)
    if collapsed := collapse_of((step.step, step.values) for step in steps):
        return Judgement(
            verdict=Verdict.COLLAPSED, why=f"The run {collapsed.sentence}.", since=collapsed.step
        )
    if len({e.step for e in evaluations}) > 1:
        first, last = evaluations[0], evaluations[-1]
        return compare(
            score(first),
            score(last),
            what=f"on {last.suite} after {last.step} steps",
            by=last.suite,
        )
    return _trend(steps)


def score(evaluation: Evaluation) -> Score:
    """Mean and standard error; see the module."""
    p, n = evaluation.reward, evaluation.n
    stderr = evaluation.stderr or 0.0
    if not stderr and 0 <= p <= 1:
        shrunk = (p * n + 1) / (n + 2)
        stderr = math.sqrt(shrunk * (1 - shrunk) / n)
    return Score(mean=p, stderr=stderr)


def shown_error(evaluation: Evaluation) -> float | None:
    """The error that pages show beside a mean; None where the line has none."""
    return None if evaluation.stderr is None else score(evaluation).stderr


def compare(before: Score, after: Score, *, what: str, by: str = "") -> Judgement:
    """ROSE, FELL or UNCHANGED."""
    change = after.mean - before.mean
    error = math.hypot(before.stderr, after.stderr)
    verdict = Verdict.UNCHANGED
    if abs(change) > BOUND * error:
        verdict = Verdict.ROSE if change > 0 else Verdict.FELL
    within = "within" if verdict is Verdict.UNCHANGED else "more than"
    why = (
        f"{before.mean:.3g} before, {after.mean:.3g} {what}: the difference, {change:+.3g}, is "
        f"{within} {BOUND:g} standard errors of {error:.2g}."
    )
    return Judgement(verdict=verdict, why=why, by=by, before=before, after=after)


def why_nothing(steps: Sequence[Step], *, planned: int | None = None) -> str:
    """Why nothing could be learnt of any step; empty where something could, or it is not known.

    One step without a signal is bad luck, unless it is the only one.
    """
    if len(steps) < min(UNTAUGHT, planned or UNTAUGHT) or any(
        step.taught is not False for step in steps
    ):
        return ""
    of_all = f"None of {len(steps)} steps had a group with a signal: "
    shares = [step.masked_share for step in steps]
    if all(share == 1 for share in shares):
        return f"{of_all}every trajectory was masked{_stops(steps)}.{_said(steps)}"
    rewards = [step.reward for step in steps if step.reward is not None]
    if rewards and not varies(rewards):
        if rewards[0] == 1:
            return f"{of_all}every reward is 1, the tasks are solved already."
        also = " No trajectory was rewarded." if rewards[0] == 0 else ""
        return f"{of_all}every reward is {rewards[0]:g}.{also}{_said(steps)}"
    return f"{of_all}the rewards of each group were equal.{_said(steps)}"


def _why_no_more(steps: Sequence[Step], *, fruitless: bool) -> str:
    """Why the end of a run that is over taught nothing; empty where it did, or where nothing is
    left to be taught."""
    count = untaught(steps)
    few = not fruitless and count < max(UNTAUGHT, len(steps) // FIFTH)
    if not count or few or all(step.reward == 1 for step in steps[-count:]):
        return ""
    which = f"The last {count} of {len(steps)} steps" if count > 1 else "The last step"
    return f"{which} taught nothing: the figures are no success.{_said(steps)}"


def untaught(steps: Sequence[Step]) -> int:
    """Steps at the end of the run, up to the newest, that taught nothing."""
    count = 0
    for step in reversed(steps):
        if step.taught is not False:
            break
        count += 1
    return count


def _trend(steps: Sequence[Step]) -> Judgement:
    rewards = [step.reward for step in steps if step.reward is not None]
    if len(rewards) < FEWEST_STEPS:
        return Judgement(
            verdict=Verdict.TOO_EARLY,
            why=f"No suite was evaluated twice, and {len(rewards)} steps with a reward are fewer "
            f"than the {FEWEST_STEPS} that a trend takes.",
        )
    size = max(2, len(rewards) // FIFTH)
    return compare(
        _mean(rewards[:size]),
        _mean(rewards[-size:]),
        what=f"at the end: rewards of training, means of {size} steps each",
    )


def _mean(values: Sequence[float]) -> Score:
    count, mean = len(values), fmean(values)
    # hypot: squares of large rewards are no numbers.
    spread = math.hypot(*(value - mean for value in values)) / math.sqrt(count - 1)
    return Score(mean=mean, stderr=spread / math.sqrt(count))


def _stops(steps: Sequence[Step]) -> str:
    """The commonest stop reason of all."""
    counts: dict[str, float] = {}
    for step in steps:
        for name, value in step.values.items():
            if name.startswith("stop/"):
                counts[name.removeprefix("stop/")] = (
                    counts.get(name.removeprefix("stop/"), 0) + value
                )
    if not counts:
        return ""
    return f" ({max(counts, key=lambda name: counts[name])} most often)"


def _said(steps: Sequence[Step]) -> str:
    """The learner's own words of the last step."""
    return f" The learner said at the end: {steps[-1].worthless}." if steps[-1].worthless else ""
