"""The learner's row of a conversation that was encoded again. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bench.retokenisation.joint import Retokened
from learner.training.batch import Row


def by_index(row: Row, joint: Retokened) -> Row | None:
    """The row with other ids and the same other columns, up to the shorter end. None if no token is
    left to learn."""
    targets = np.flatnonzero(row.target[: len(joint.joint)])
    if not len(targets):
        return None
    end = int(targets[-1]) + 1
    return replace(
        row,
        tokens=np.array(joint.joint[:end], dtype=np.int64),
        target=row.target[:end],
        behaviour=row.behaviour[:end],
        temperature=row.temperature[:end],
        fresh=row.fresh[:end],
        advantage=row.advantage[:end],
    )


def by_text(row: Row, joint: Retokened) -> Row | None:
    """The row without log-probs. Its targets are the tokens whose first letter the policy wrote.
    None without such tokens."""
    target = np.array(joint.policy, dtype=bool)
    target[:1] = False
    if not target.any():
        return None
    end = int(np.flatnonzero(target)[-1]) + 1
    first = int(np.flatnonzero(row.target)[0])  # every target of a trajectory has one advantage
    return replace(
        row,
        tokens=np.array(joint.joint[:end], dtype=np.int64),
        target=target[:end],
        behaviour=np.zeros(end, dtype=np.float32),
        temperature=np.full(end, row.temperature[first]),
        fresh=np.zeros(end, dtype=bool),
        advantage=np.full(end, row.advantage[first]),
    )
