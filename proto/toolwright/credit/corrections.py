"""Corrections for a sampler and a learner that disagree: one entry each; a run has exactly one.

rho is a token's probability by the learner at the start of the update, over the sampler's. The
functions are in `learner.maths.correction`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from toolwright.credit.entries import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionEntry(Entry):
    """One correction. `reads` are keys of [learner.correction]; `formula` is a token's weight."""

    settings: str = ""
    """Template of the settings, for the line in force: {upper}, {low}, {cap}, {cap_mode}."""
    weighs: bool = True
    """Whether a token's loss gets a weight."""
    leaves_out: Literal["nothing", "tokens", "sequences"] = "nothing"
    """What leaves the batch if rho is out of bounds."""
    stale: bool = False
    """Whether it is for staleness (run.max_staleness above 0) and for nothing else."""


CORRECTIONS: Mapping[str, CorrectionEntry] = {
    "bypass": CorrectionEntry(
        formula="1: the loss takes its ratio to the sampler", also=("none", "off"), weighs=False
    ),
    "token_truncate": CorrectionEntry(
        formula="min(rho, upper)", reads=("upper",), also=("tis",), settings=" at {upper:g}"
    ),
    "token_mask": CorrectionEntry(
        formula="rho, of tokens within the bounds",
        reads=("upper", "lower"),
        also=("mis", "icepop"),
        settings=" outside of {low:.3g} to {upper:g}",
        leaves_out="tokens",
    ),
    "seq_truncate": CorrectionEntry(
        formula="min(product of the sequence's rho, upper)",
        reads=("upper",),
        settings=" at {upper:g}",
    ),
    "geo_mask": CorrectionEntry(
        formula="1, in sequences whose geometric mean of rho is within the bounds",
        reads=("upper", "lower"),
        settings=" outside of {low:.3g} to {upper:g}",
        leaves_out="sequences",
    ),
    "decoupled": CorrectionEntry(
        formula="rho, capped by decoupled_cap",
        reads=("decoupled_cap", "decoupled_cap_mode"),
        settings=", {cap_mode} above {cap:g}",
        stale=True,
    ),
}

if TYPE_CHECKING:
    CorrectionMode = str
else:
    CorrectionMode = Literal[tuple(CORRECTIONS)]
"""Type of the key `run.correction`."""
