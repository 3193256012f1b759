"""Scores of a set, summed up row by row; pure.

A set is a suite, or one data source of a suite with several. With one sample for each question,
memory does not grow with the questions. With more, each question's sums are kept: its samples are
not independent, so the standard error is that of the questions' means (clustered by question).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.offline.evaluate.results.rows import MeasuredRow
from engine.serving.evaluation.rates import Rates, Sums
from toolwright.statistics import Moments, mean_of, pass_at, share_error

MOST_SOURCES = 32
"""Most data sources of a suite that become sets; a suite with more is one set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanScore:
    """A mean over questions. stderr: None with too few questions."""

    mean: float
    stderr: float | None


class SetScores:
    """Sums over one set."""

    def __init__(self, samples: int) -> None:
        self._clustered = samples > 1
        self._samples = samples
        self._columns: dict[str, _Column] = {}
        self._counts: dict[int, int] = {}
        self.rows = 0
        self.first = sys.maxsize
        """Lowest number of its questions. Rows come in any order; sets are shown in this one."""
        self.calls = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.seconds = 0.0
        self.masked = 0
        self.stops: Counter[str] = Counter()
        self.rates = Rates()
        self._rated: dict[int, Sums] = {}
        """Sums of each question's rates, with several samples."""
        self.sampled: Counter[str] = Counter()
        """Actions of a model behind an API, by remark."""

    def add(self, row: MeasuredRow) -> None:
        self.rows += 1
        self.first = min(self.first, row.question)
        self.calls += row.calls
        self.input_tokens += row.input_tokens
        self.output_tokens += row.output_tokens
        self.seconds += row.seconds
        self.masked += row.masked
        self.stops[row.stop_reason] += 1
        if row.rates:
            sums = self._rated.setdefault(row.question, {}) if self._clustered else None
            self.rates.add(row.rates, sums, shares=row.shares)
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
        """Number of questions with a score."""
        return len(self._counts) if self._clustered else self.rows

    @property
    def names(self) -> Sequence[str]:
        """The reward and its parts."""
        return list(self._columns)

    def score(self, name: str) -> MeanScore | None:
        """The score by the reward or a part; None if no row has the part.

        A row without the part counts as 0.
        """
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
            return MeanScore(mean=found.mean, stderr=error)
        whole = Moments(
            n=moments.n, mean=moments.mean, squares=moments.squares, binary=moments.binary
        )
        whole.add_zeros(self.rows - whole.n)
        return MeanScore(mean=whole.mean, stderr=whole.stderr)

    def passes(self, name: str) -> dict[int, MeanScore]:
        """pass@k of a 0/1 score by k, over questions with all their samples.

        Empty for one sample of each question, and for other scores.
        """
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
                found[k] = MeanScore(mean=mean.mean, stderr=mean.stderr)
        return found

    def _means(self, column: _Column) -> list[float]:
        return [column.sums.get(question, 0.0) / n for question, n in self._counts.items()]


class SuiteScores:
    """The sets of one suite."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self.whole = SetScores(samples)
        self._sources: dict[str, SetScores] = {}

    def add(self, row: MeasuredRow) -> None:
        self.whole.add(row)
        if len(self._sources) <= MOST_SOURCES:
            if row.data_source not in self._sources:
                self._sources[row.data_source] = SetScores(self._samples)
            self._sources[row.data_source].add(row)

    @property
    def sources(self) -> Mapping[str, SetScores]:
        """Sets by data source, ordered by their first questions.

        Empty with a single source or with more than MOST_SOURCES.
        """
        if not 1 < len(self._sources) <= MOST_SOURCES:
            return {}
        return dict(sorted(self._sources.items(), key=lambda one: one[1].first))


def set_names(sources: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], str]:
    """Name of the set of each (suite, data source). A name of two sets gets its suite as prefix.

    sources: data sources by suite; none for a suite that is one set, whose data source is "" then.
    """
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
    """One score: its moments over rows, and its sum for each question with several samples."""

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
