"""Advantages of tokens that branches share.

A branch begins with a copy of its parent's tokens up to the fork, and each copy is trained on. With
"soft" a copy has its own rollout's advantage; these add up to the mean unless a clip acts. With
"hard" each copy gets the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from learner.credit.members import Member
from learner.maths.branches import shared_mean
from learner.training.batch import Row
from toolwright.types import Sequence as TokenSequence
from toolwright.types import Trajectory


def evened(
    members: Sequence[Member], rows: Sequence[Row], values: Sequence[np.ndarray]
) -> dict[int, np.ndarray]:
    """Averaged values of the rows that share tokens, by row index.

    values: [T] of every row.
    """
    known = {q.id: q for member in members for q in _without_copies(member.trajectory)}
    of_row = {
        place: known[member.trajectory.sequences[rows[place].sequence].id]
        for member in members
        for place in member.rows
    }
    first = {place: origin(q, 1, known)[0] for place, q in of_row.items()}
    forked = {first[place] for place, q in of_row.items() if q.parent is not None}
    places = [place for place in of_row if first[place] in forked]
    paths = [origin(of_row[place], len(rows[place].tokens), known) for place in places]
    means = shared_mean(paths, [values[place].tolist() for place in places])
    return {place: np.array(mean) for place, mean in zip(places, means, strict=True)}


def _without_copies(trajectory: Trajectory) -> list[TokenSequence]:
    """The sequences. A copy of another one of the trajectory has no parent: the copied tokens are
    not trained, so they have no part in a mean."""
    return [
        replace(q, parent=None, fork_offset=None) if shared else q
        for q, shared in zip(trajectory.sequences, trajectory.shared_prefixes, strict=True)
    ]


def origin(
    sequence: TokenSequence, length: int, known: Mapping[str, TokenSequence]
) -> list[tuple[str, int]]:
    """(sequence that wrote it, index there) of each of the first `length` tokens."""
    parent, fork = sequence.parent, 0
    head: list[tuple[str, int]] = []
    if parent is not None:
        fork = min(length, sequence.fork_offset or 0)
        # Each level searches fewer sequences, so that a circle of parents ends too.
        others = {name: other for name, other in known.items() if name != sequence.id}
        above = others.get(parent)
        head = origin(above, fork, others) if above else [(parent, at) for at in range(fork)]
    return head + [(sequence.id, at) for at in range(fork, length)]
