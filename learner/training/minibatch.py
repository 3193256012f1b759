"""Mini-batches: the rows of one optimizer step, their scores, and the rows that leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from learner.config.objective import Loss
from learner.maths.aggregation import token_weights
from learner.maths.correction import judge
from learner.maths.tasks import Tasks, mixed_weights
from learner.model.policy import Model
from learner.training.batch import Row
from learner.training.objective import PolicyObjective, gap_stats
from learner.training.step import score


@dataclass(slots=True)
class MiniBatch:
    """The rows of one optimizer step."""

    rows: list[Row]
    counts: list[int]
    """Number of targets of each row in the means; 0 if the row has left."""
    loss: Loss
    all_rows: bool
    """Whether rows without an advantage move the weights too."""
    tasks: Tasks | None = None
    """The recipe's tasks; None if it has one."""

    def forwarded(self) -> list[int]:
        """Indices of the rows that can move the weights."""
        return [
            place
            for place, (row, count) in enumerate(zip(self.rows, self.counts, strict=True))
            if count and (self.all_rows or row.has_signal)
        ]

    def weighed(self) -> list[Row]:
        """The rows that can move the weights, with each target's weight in the loss."""
        mode, norm = self.loss.aggregation, self.loss.norm
        copies = [row.copies for row in self.rows]
        units = [row.trajectory for row in self.rows] if self.loss.unit == "trajectory" else None
        if self.tasks is None:
            weights = token_weights(self.counts, mode, norm=norm, trajectories=units, copies=copies)
        else:
            of_row = [row.task for row in self.rows]
            weights = mixed_weights(
                self.counts,
                of_row,
                self.tasks,
                mode,
                norm=norm,
                trajectories=units,
                copies=copies,
            )
        return [replace(self.rows[place], weight=weights[place]) for place in self.forwarded()]

    def live(self) -> list[int]:
        """Indices of the rows that count in the means."""
        return [place for place, count in enumerate(self.counts) if count]

    def score(
        self,
        model: Model,
        budget: int,
        field: Literal["old", "reference"],
        places: Sequence[int],
    ) -> None:
        """Fills a field of the rows at these indices."""
        scored, _ = score(model, [self.rows[p] for p in places], budget, field)
        for place, row in zip(places, scored, strict=True):
            self.rows[place] = row

    def judge(self, objective: PolicyObjective) -> dict[str, float]:
        """Drops tokens and rows that the correction rejects. All rows that count must have scores.

        Returns stats over these rows: what was dropped, and how far sampler and learner disagree.
        """
        sums: dict[str, float] = {}
        for place in self.live():
            row = self.rows[place]
            if row.old is None:
                raise ValueError("score the row at the start of the update before judging it")
            old, behaviour, fresh = (
                torch.from_numpy(values[row.target])
                for values in (row.old, row.behaviour, row.fresh)
            )
            judgement = judge(old - behaviour, objective.correction, objective.bounds)
            target = row.target.copy()
            target[row.target] = judgement.kept.numpy()
            self.rows[place] = replace(row, target=target)
            self.counts[place] = int(judgement.kept.sum())
            stats = {name: float(value) for name, value in gap_stats(old, behaviour, fresh).items()}
            stats["masked_tokens"] = float(len(old) - self.counts[place])
            stats["vetoed"] = float(judgement.vetoed)
            stats["rejected"] = float(judgement.rejected)
            add_stats(sums, stats)
        return sums

    def drop(self, places: Sequence[int]) -> list[str]:
        """Drops rows, and all others of their trajectories, from the means too. Returns the
        trajectory of each dropped row."""
        broken = {self.rows[place].trajectory for place in places}
        lost = [place for place in self.live() if self.rows[place].trajectory in broken]
        for place in lost:
            self.counts[place] = 0
        return [self.rows[place].trajectory for place in lost]

    def drop_unreadable(self, places: Sequence[int]) -> list[str]:
        """Drops rows whose inputs are not finite, like `drop`."""
        return self.drop([p for p in places if not inputs_are_finite(self.rows[p])])


def split(rows: Sequence[Row], parts: int) -> list[list[Row]]:
    """The rows of each of `parts` mini-batches. All rows of a trajectory are in one."""
    numbers: dict[str, int] = {}
    found: list[list[Row]] = [[] for _ in range(parts)]
    for row in rows:
        found[numbers.setdefault(row.trajectory, len(numbers)) % parts].append(row)
    return found


def inputs_are_finite(row: Row) -> bool:
    """Whether a row's advantage, temperature and log-probs are finite at its targets."""
    read = (row.advantage, row.behaviour, row.temperature, row.old, row.reference)
    return all(values is None or np.isfinite(values[row.target]).all() for values in read)


def counts_of(rows: Sequence[Row], *, drop_silent: bool) -> list[int]:
    """Number of targets of each row. `drop_silent`: 0 for rows of groups without a signal."""
    return [0 if drop_silent and row.silent else row.count for row in rows]


def add_stats(sums: dict[str, float], stats: dict[str, float]) -> None:
    """Adds stats to the sums; of names that begin with max_ it keeps the largest."""
    for name, value in stats.items():
        if name.startswith("max_"):
            sums[name] = max(sums.get(name, 0.0), value)
        else:
            sums[name] = sums.get(name, 0.0) + value
