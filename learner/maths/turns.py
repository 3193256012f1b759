"""Advantages of a trajectory and of its turns, on the tokens that the policy wrote.

The sum of both terms is SEARL's (sections 3.2 and 3.3); `toolwright.credit` computes the terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def token_map(
    episode: float | np.ndarray,
    steps: Sequence[float],
    spans: Iterable[tuple[int, int, int]],
    length: int,
    weight: float,
) -> np.ndarray:
    """[length] float64: episode + weight * step on every action token of a turn, 0 elsewhere.

    episode: advantage of the trajectory, or [length] of its tokens. steps: advantages by turn;
    later turns have no term. spans: (turn, start, end) of the policy's tokens, cut at `length`.
    """
    everywhere = np.broadcast_to(np.asarray(episode, dtype=np.float64), (length,))
    out = np.zeros(length, dtype=np.float64)
    for turn, start, end in spans:
        step = steps[turn] if turn < len(steps) else 0.0
        out[start:end] = everywhere[start:end] + weight * step
    return out
