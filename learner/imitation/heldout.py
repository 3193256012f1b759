"""The loss on held-out traces, and the best step by it.

The loss is that of training: mean negative log-likelihood over all targets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from learner.imitation.traces import Trace
from learner.model.policy import Model
from learner.training.step import score

TRACES_AT_A_TIME = 64
"""Number of traces that are scored together: all their log-probs are on the device at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The lowest held-out loss of the run and the step that had it."""

    step: int = 0
    loss: float = math.inf


def held_out_loss(model: Model, traces: Sequence[Trace], budget: int) -> float:
    """Mean negative log-likelihood over the targets of all traces; all ranks call it.

    Not finite if a log-prob is not finite. Broken rows are not dropped: means over different tokens
    cannot be compared.
    """
    total, count = 0.0, 0
    for start in range(0, len(traces), TRACES_AT_A_TIME):
        part = traces[start : start + TRACES_AT_A_TIME]
        scored, _ = score(model, list(chain.from_iterable(t.rows for t in part)), budget, "old")
        for row in scored:
            total -= float(np.asarray(row.old)[row.target].sum(dtype=np.float64))
            count += row.count
    return total / count
