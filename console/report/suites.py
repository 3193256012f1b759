"""Which suites a report speaks of, and what each measured before and after. Pure.

A suite NAME-sampled and a suite NAME-greedy are two ways to ask the same questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from console.config import Words
from console.record.run import RunFiles
from console.record.types import WAYS, Evaluation, way_of
from console.verdict import Score, score

MOST_SUITES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSuite:
    """Questions by one name; `ways`: the suite of each way that there is."""

    name: str
    title: str
    ways: Mapping[str, str]

    @property
    def main(self) -> str:
        """The suite that judges: sampled, as in training, where there is one."""
        return next(self.ways[way] for way in WAYS if way in self.ways)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A suite's first and last measurement. after: None where it was measured once."""

    n: int
    before: Score
    after: Score | None
    steps: tuple[int, int]


def named_suites(runs: Sequence[RunFiles]) -> list[NamedSuite]:
    """Every suite that a run was evaluated on, in the recipe's order; at most MOST_SUITES."""
    heat: dict[str, float | None] = {}
    for run in runs:
        heat |= {name: t for name, t in run.resolved.suites.items() if name not in heat}
    measured = {e.suite: e.temperature for run in runs for e in run.record.evaluations}
    found: dict[str, dict[str, str]] = {}
    for suite in [name for name in heat if name in measured] + [
        n for n in measured if n not in heat
    ]:
        name, way = way_of(
            suite, measured[suite] if measured[suite] is not None else heat.get(suite)
        )
        found.setdefault(name, {}).setdefault(way, suite)
    return [NamedSuite(name=name, title=name, ways=ways) for name, ways in found.items()][
        :MOST_SUITES
    ]


def shown_suites(suites: Iterable[NamedSuite], words: Words) -> list[NamedSuite]:
    """Suites that the recipe's words name, in their order; all if they name no measured suite."""
    by_name = {one.name: one for one in suites}
    named = [
        NamedSuite(name=shown.name, title=shown.title or shown.name, ways=by_name[shown.name].ways)
        for shown in words.suites
        if shown.name in by_name
    ]
    return named or list(by_name.values())


def change(evaluations: Sequence[Evaluation]) -> Change | None:
    """Change of one suite; None if it was never measured."""
    if not evaluations:
        return None
    first, last = evaluations[0], evaluations[-1]
    return Change(
        n=last.n,
        before=score(first),
        after=score(last) if last.step > first.step else None,
        steps=(first.step, last.step),
    )


def mean(changes: Sequence[Change]) -> Change | None:
    """Over runs; None without any. after: where all of them have it."""
    if not changes:
        return None
    afters = [one.after for one in changes if one.after is not None]
    return Change(
        n=changes[0].n,
        before=mean_score([one.before for one in changes]),
        after=mean_score(afters) if len(afters) == len(changes) else None,
        steps=(min(one.steps[0] for one in changes), max(one.steps[1] for one in changes)),
    )


def mean_score(scores: Sequence[Score]) -> Score:
    """Its error is that over questions alone: what seeds differ by is seen in their rows."""
    return Score(
        mean=fmean(one.mean for one in scores),
        stderr=math.hypot(*(one.stderr for one in scores)) / len(scores),
    )
