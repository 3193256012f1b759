"""What the rows of a set come to, from one row after the other; pure.

A set is what one score stands for: a suite, or one data source of a suite that has several. With
one sample a question nothing here grows with the questions. With more, the sums of each question
are held: its samples are no independent questions, so the standard error is that of the questions'
means (clustered by question).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.offline.evaluate.results.rows import Row
from engine.serving.evaluation.rates import Rates
from toolwright.statistics import Moments, mean_of, pass_at, share_error

MOST_SOURCES = 32
"""Data sources of one suite that are told apart; a suite with more of them is one set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A mean over questions. stderr: None where too few tell."""

    mean: float
    stderr: float | None


class SetScores:
    """Sums over one set. samples: of each question."""

    def __init__(self, samples: int) -> None:
        self._clustered = samples > 1
        self._samples = samples
        self._columns: dict[str, _Column] = {}
        self._counts: dict[int, int] = {}
        self.rows = 0
        self.first = sys.maxsize
        """The least number of its questions: rows come in any order, sets are shown in one."""
        self.calls = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.seconds = 0.0
        self.masked = 0
        self.stops: Counter[str] = Counter()
        self.rates = Rates()
        self.sampled: Counter[str] = Counter()
        """Actions of a model behind an API, by remark."""

    def add(self, row: Row) -> None:
        self.rows += 1
        self.first = min(self.first, row.question)
        self.calls += row.calls
        self.input_tokens += row.input_tokens
        self.output_tokens += row.output_tokens
        self.seconds += row.seconds
        self.masked += row.masked
        self.stops[row.stop_reason] += 1
        self.rates.add(row.rates)
        self.sampled.update(row.sampled)
        if self._clustered:
            self._counts[row.question] = self._counts.get(row.question, 0) + 1
        for name, value in row.parts.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = _Column()
            column.add(value, row.question if self._clustered else None)

    @property
    def questions(self) -> int:
        """That have a score."""
        return len(self._counts) if self._clustered else self.rows

    @property
    def names(self) -> Sequence[str]:
        """The reward and its parts."""
        return list(self._columns)

    def score(self, name: str) -> Score | None:
        """Of the reward or a part; a row without the part counts 0. None where no row has it."""
        column = self._columns.get(name)
        if column is None:
            return None
        moments = column.moments
        if self._clustered:
            means = self._means(column)
            found = mean_of(means)
            assert found is not None  # a column has a row, and its values are finite
            binary = all(mean in (0.0, 1.0) for mean in means)
            error = share_error(found.mean, found.n) if binary else found.stderr
            return Score(mean=found.mean, stderr=error)
        whole = Moments(
            n=moments.n, mean=moments.mean, squares=moments.squares, binary=moments.binary
        )
        whole.add_zeros(self.rows - whole.n)
        return Score(mean=whole.mean, stderr=whole.stderr)

    def passes(self, name: str) -> dict[int, Score]:
        """pass@k of a 0/1 score by k, over questions with all their samples; empty for one sample
        a question, and for other scores."""
        column = self._columns.get(name)
        if column is None or not self._clustered or not column.moments.binary:
            return {}
        n = self._samples
        right = [
            round(column.sums.get(question, 0.0))
            for question, count in self._counts.items()
            if count == n
        ]
        found = {}
        for k in _up_to(n):
            mean = mean_of(pass_at(n, one, k) for one in right)
            if mean is not None:
                found[k] = Score(mean=mean.mean, stderr=mean.stderr)
        return found

    def _means(self, column: _Column) -> list[float]:
        return [column.sums.get(question, 0.0) / n for question, n in self._counts.items()]


class SuiteScores:
    """The sets of one suite."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self.whole = SetScores(samples)
        self._sources: dict[str, SetScores] = {}

    def add(self, row: Row) -> None:
        self.whole.add(row)
        if len(self._sources) <= MOST_SOURCES:
            if row.data_source not in self._sources:
                self._sources[row.data_source] = SetScores(self._samples)
            self._sources[row.data_source].add(row)

    @property
    def sources(self) -> Mapping[str, SetScores]:
        """By data source, in the order of their first questions; empty unless there are several,
        and not too many."""
        if not 1 < len(self._sources) <= MOST_SOURCES:
            return {}
        return dict(sorted(self._sources.items(), key=lambda one: one[1].first))


def names_of_sets(sources: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], str]:
    """(suite, data source) -> the set's name. sources: by suite, empty where it is one set, whose
    source then is "". A name that two sets would share has the suite in front."""
    plain = {
        (suite, source): source or suite
        for suite, own in sources.items()
        for source in (own or [""])
    }
    twice = {name for name, n in Counter(plain.values()).items() if n > 1}
    return {
        (suite, source): f"{suite}: {source or 'none'}" if name in twice and source else name
        for (suite, source), name in plain.items()
    }


@dataclass(slots=True)
class _Column:
    """One score: its moments over rows, and the sum of each question where there are several."""

    moments: Moments = field(default_factory=Moments)
    sums: dict[int, float] = field(default_factory=dict)

    def add(self, value: float, question: int | None) -> None:
        self.moments.add(value)
        if question is not None:
            self.sums[question] = self.sums.get(question, 0.0) + value


def _up_to(n: int) -> list[int]:
    """1, 2, 4, ... and n."""
    found = [1]
    while found[-1] * 2 < n:
        found.append(found[-1] * 2)
    return [*found, n] if n > 1 else found
