"""Means, standard errors and p-values that several processes report. Pure.

Invariants
- Sums of large values do not cancel.
- An unknown error is None, never 0: one value has no spread.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

NORMAL = 1.96
"""Standard errors around a mean that hold 95 % of a normal distribution."""
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The same for Student's t, from 1 degree of freedom on."""
PERMUTED = 2000
"""Pairs up to which signs are permuted; more of them make the normal distribution right."""
PERMUTATIONS = 10_000
"""Draws of signs: a p of 0.05 comes out within 0.004."""
_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A mean over `n` values. stderr: None for one value."""

    mean: float
    stderr: float | None
    n: int


def mean_of(values: Iterable[float]) -> Mean | None:
    """Mean of the finite values, with its standard error: the sample standard deviation over the
    root of n. None without a finite value."""
    found = [value for value in values if math.isfinite(value)]
    if not found:
        return None
    n = len(found)
    # The shares of tiny values are zeros.
    mean = min(max(min(found), math.fsum(value / n for value in found)), max(found))
    if n == 1:
        return Mean(mean=mean, stderr=None, n=1)
    # hypot: squares of large values are no numbers.
    spread = math.hypot(*(value - mean for value in found)) / math.sqrt(n - 1)
    return Mean(mean=mean, stderr=spread / math.sqrt(n), n=n)


@dataclass(slots=True)
class Moments:
    """Mean and spread of values that come one after the other and are not kept (Welford 1962).
    binary: every value was 0 or 1."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    binary: bool = True

    def add(self, value: float) -> None:
        self.n += 1
        before = value - self.mean
        self.mean += before / self.n
        self.squares += before * (value - self.mean)
        self.binary = self.binary and value in (0.0, 1.0)

    def add_zeros(self, count: int) -> None:
        """The same as `count` times `add(0.0)` (Chan, Golub, LeVeque 1979)."""
        if count > 0:
            whole = self.n + count
            self.squares += self.mean * self.mean * self.n * count / whole
            self.mean *= self.n / whole
            self.n = whole

    @property
    def stderr(self) -> float | None:
        """sqrt(p (1 - p) / n) of shares, else the sample standard deviation over the root of n.
        None for too few values."""
        if self.binary:
            return share_error(self.mean, self.n)
        return math.sqrt(max(0.0, self.squares) / (self.n - 1) / self.n) if self.n > 1 else None


@dataclass(slots=True)
class Ratio:
    """A sum of parts over a sum of wholes, from clusters that come one after the other and are not
    kept. A cluster is a question with all its samples, say: within it, parts may depend on each
    other. A standard error below 1e-8 of the rate is rounding."""

    n: int = 0
    """Number of clusters with a whole above 0."""
    part: float = 0.0
    whole: float = 0.0
    parts_squared: float = 0.0
    products: float = 0.0
    wholes_squared: float = 0.0

    def add(self, part: float, whole: float, before: tuple[float, float] = (0.0, 0.0)) -> None:
        """Adds to a cluster. before: the cluster's sums so far, part and whole."""
        was_part, was_whole = before
        is_part, is_whole = was_part + part, was_whole + whole
        self.n += bool(is_whole) - bool(was_whole)
        self.part += part
        self.whole += whole
        self.parts_squared += is_part * is_part - was_part * was_part
        self.products += is_part * is_whole - was_part * was_whole
        self.wholes_squared += is_whole * is_whole - was_whole * was_whole

    def include(self, other: Ratio) -> None:
        """Adds all clusters of another ratio."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    @property
    def value(self) -> float | None:
        """The rate; None without a whole."""
        return self.part / self.whole if self.whole else None

    @property
    def stderr(self) -> float | None:
        """sqrt(n / (n - 1) * sum over clusters of (part - rate * whole)^2) / whole, the linearised
        error of a ratio (Cochran 1977, equation 2.39). None for fewer than two clusters."""
        if self.n < 2 or (rate := self.value) is None:
            return None
        squares = self.parts_squared - 2 * rate * self.products + rate**2 * self.wholes_squared
        return math.sqrt(max(0.0, squares) * self.n / (self.n - 1)) / self.whole


def share_error(share: float, n: int) -> float | None:
    """Standard error of a share of n yes-or-no answers: sqrt(p (1 - p) / n); None
    for fewer than two answers."""
    return math.sqrt(max(0.0, share * (1.0 - share)) / n) if n > 1 else None


def student(degrees: int) -> float:
    """Standard errors that hold 95 % of Student's t."""
    if degrees <= len(STUDENT):
        return STUDENT[degrees - 1]
    return NORMAL + (NORMAL**3 + NORMAL) / (4 * degrees)  # Cornish and Fisher, first order


def normal(difference: float, stderr: float) -> float:
    """Two-sided p of a difference by the normal distribution: 1 without a difference."""
    if not difference:
        return 1.0
    return math.erfc(abs(difference) / stderr / math.sqrt(2)) if stderr else 0.0


def pass_at(n: int, right: int, k: int) -> float:
    """The unbiased chance that at least one of k samples is right, if `right` of n were.

    1 - C(n - right, k) / C(n, k) (Chen et al. 2021, arXiv:2107.03374, equation 1). Raises
    ValueError if k is above n.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} cannot be estimated from {n} samples")
    wrong = n - right
    if wrong < k:
        return 1.0
    return 1.0 - math.prod((wrong - i) / (n - i) for i in range(k))


def mcnemar(better: int, worse: int) -> float:
    """Two-sided p of the exact test of McNemar: what a fair coin gives for pairs that differ.
    better, worse: pairs of 0/1 scores that differ in the one and in the other direction."""
    n, few = better + worse, min(better, worse)
    if not n:
        return 1.0
    # Logarithms: binomial coefficients of thousands of pairs are beyond a float.
    whole = math.lgamma(n + 1) - n * math.log(2)
    tail = math.fsum(
        math.exp(whole - math.lgamma(i + 1) - math.lgamma(n - i + 1)) for i in range(few + 1)
    )
    return min(1.0, 2.0 * tail)


def sign_flips(differences: Sequence[float], *, seed: int = 0) -> float:
    """Two-sided p of paired differences whose signs are drawn anew: how often chance gives a mean
    as far from 0. Above PERMUTED pairs, that of the paired t by the normal distribution. The same
    numbers and seed give the same p, which is above 0."""
    values = np.asarray(differences, dtype=np.float64)
    values = values[values != 0.0]
    n = len(differences)
    if not len(values):
        return 1.0
    # Scaled, so that no sum of large differences is infinite.
    values = values / np.abs(values).max()
    if n > PERMUTED:
        mean = math.fsum(values) / n
        # Around the mean: a difference of two large sums may come out negative. Zeros count too.
        squares = math.fsum((values - mean) ** 2) + (n - len(values)) * mean * mean
        error = math.sqrt(squares / (n - 1) / n)
        return max(normal(mean, error), sys.float_info.min)
    found = abs(float(values.sum())) * (1 - 1e-12)
    draws = np.random.default_rng(seed)
    as_far = 0
    for _ in range(PERMUTATIONS // _AT_ONCE):
        signs = draws.integers(0, 2, (_AT_ONCE, len(values)), dtype=np.int8) * 2 - 1
        as_far += int((np.abs(signs @ values) >= found).sum())
    # The draw that was measured is one of them: no p is 0.
    return (as_far + 1) / (PERMUTATIONS + 1)
