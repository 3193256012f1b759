"""Which traces teach: MTR keeps those that are right, without errors, and of 2 to 12 calls.

    engine sample recipe.toml --keep ./filter.py:right --keep ./filter.py:no_errors ...

Each criterion is a function of the scored trajectory of its own, so that each has a yield of its
own. `no_errors` is the paper's (section 3.2.1). It refuses every trace that corrects itself, so
no policy learns to; `errors_recovered` in its place keeps those whose errors were all followed by
a call of the same tool that worked.

Equal traces and more of a question than it is worth are for the command to take away
(--dedupe calls, --most-per-task).
"""

from __future__ import annotations

from dataclasses import dataclass

from tasks.judging import words
from toolwright.types import Trajectory

from .traces import read

MIN_CALLS, MAX_CALLS = 2, 12


def right(trajectory: Trajectory) -> bool:
    """The final answer is a right one, both normalised."""
    final = read(trajectory).final
    return final is not None and words.exact_match(final, trajectory.task.answers)


def no_errors(trajectory: Trajectory) -> bool:
    """No call was refused, and none failed."""
    return not read(trajectory).errors


def errors_recovered(trajectory: Trajectory) -> bool:
    """Every call that was refused or failed was corrected later (`Trace.unrecovered`)."""
    return not read(trajectory).unrecovered


def two_to_twelve_calls(trajectory: Trajectory) -> bool:
    """As many as the paper keeps, both ends included; refused calls count."""
    return MIN_CALLS <= len(read(trajectory).calls) <= MAX_CALLS


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """reasons: of "wrong_answer", "validation_error" and "length", in this order; none = kept."""

    reasons: tuple[str, ...]

    @property
    def keep(self) -> bool:
        return not self.reasons


def trace_filter(
    *,
    correct: bool,
    n_validation_errors: int,
    n_calls: int,
    min_calls: int = MIN_CALLS,
    max_calls: int = MAX_CALLS,
) -> Kept:
    """All criteria of a trace that is known by its figures alone."""
    refused = {
        "wrong_answer": not correct,
        "validation_error": n_validation_errors > 0,
        "length": not min_calls <= n_calls <= max_calls,
    }
    return Kept(reasons=tuple(reason for reason, holds in refused.items() if holds))
