"""The verdict in words, for one run or several. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from console.config import Words
from console.record.run import RunFiles
from console.report.suites import NamedSuite, mean_score
from console.verdict import Judgement, Score, Verdict, compare, judge


def judge_run(run: RunFiles, main: NamedSuite | None) -> Judgement:
    """One run, by the suite that counts."""
    found = run.record.curve(main.main) if main is not None else ()
    ended = run.course.ended.status if run.course.ended is not None else None
    return judge(run.record.steps, found, planned=run.planned, ended=ended)


def judge_all(runs: Sequence[RunFiles], main: NamedSuite | None) -> Judgement:
    """All runs that are no control: by the mean of what each was compared by."""
    counted = [run for run in runs if not run.resolved.control] or list(runs)
    found = [judge_run(run, main) for run in counted]
    if len(found) == 1:
        return found[0]
    for verdict in (Verdict.NOTHING, Verdict.COLLAPSED, Verdict.TOO_EARLY):
        if all(one.verdict is verdict for one in found):
            return found[0]
    befores = [one.before for one in found if one.before is not None]
    afters = [one.after for one in found if one.after is not None]
    if len(afters) < len(found) or len({one.by for one in found}) > 1:
        words = ", ".join(
            f"{run.name}: {one.verdict}" for run, one in zip(counted, found, strict=True)
        )
        why = f"The {len(found)} runs cannot be taken together. {words}."
        return Judgement(verdict=Verdict.TOO_EARLY, why=why)
    what = f"after training, means of {len(found)} runs"
    return compare(mean_score(befores), mean_score(afters), what=what, by=found[0].by)


def are_shares(runs: Sequence[RunFiles]) -> bool:
    """Whether every reward and every part of one was between 0 and 1, so that a mean may be read as
    a share. Means of training and the extremes of evaluations are compared; single rewards of
    training are not recorded."""
    trained = (
        value
        for run in runs
        for step in run.record.steps
        for name, value in step.values.items()
        if name == "reward" or name.startswith("reward/")
    )
    evaluated = (
        value
        for run in runs
        for e in run.record.evaluations
        for value in (e.reward, e.lowest, e.highest)
        if value is not None
    )
    return all(0 <= value <= 1 for value in chain(trained, evaluated))


def questions(runs: Sequence[RunFiles], judgement: Judgement) -> int | None:
    """Rows of the suite that was compared, the fewest of any evaluation; None where training was
    compared."""
    return min(
        (e.n for run in runs for e in run.record.evaluations if e.suite == judgement.by),
        default=None,
    )


def headline(
    judgement: Judgement,
    main: NamedSuite | None,
    words: Words,
    *,
    shares: bool,
    questions: int | None = None,
) -> str:
    """One sentence without its full stop. shares: the rewards are. questions: that each evaluation
    asked; None where training was compared."""
    before, after = judgement.before, judgement.after
    if judgement.verdict is Verdict.NOTHING:
        since = f" from step {judgement.since} on" if judgement.since else ""
        return f"Nothing could be learnt{since}"
    if judgement.verdict is Verdict.COLLAPSED:
        return f"The policy collapsed at update {judgement.since}"
    if judgement.verdict is Verdict.TOO_EARLY or before is None or after is None:
        return "Too early to say"
    if judgement.by and main is not None:
        if shares:
            subject = words.headline or f"Success on {main.title}"
        else:
            own = f"{words.headline}: mean reward" if words.headline else ""
            subject = own or f"Mean reward on {main.title}"
    else:
        subject = "The reward of training"
    was, became = shown_pair(before, after, shares=shares)
    if judgement.verdict is Verdict.UNCHANGED:
        if was == became:
            return f"{subject} did not change: {was} before, {became} after"
        sample = "the steps" if questions is None else _counted(questions)
        return f"{subject}: no difference that {sample} can show, {was} before, {became} after"
    return f"{subject} {judgement.verdict} from {was} to {became}"


def _counted(questions: int) -> str:
    return "1 question" if questions == 1 else f"{questions:,} questions"


def shown_pair(before: Score, after: Score, *, shares: bool) -> tuple[str, str]:
    """Per cent of shares, with as many digits as tell them apart."""
    if not shares:
        return f"{before.mean:.3g}", f"{after.mean:.3g}"
    for digits in (0, 1, 2):
        was, became = f"{before.mean:.{digits}%}", f"{after.mean:.{digits}%}"
        if was != became or before.mean == after.mean:
            break
    return was, became
