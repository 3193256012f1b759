"""The rows of one optimizer step: which of them count, are scored, judged and left out."""

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
class Part:
    """The rows of one optimizer step, and what each counts in the means (0: it has left).

    everything: rows without an advantage move the weights too. tasks: where the recipe has several.
    """

    rows: list[Row]
    counts: list[int]
    loss: Loss
    everything: bool
    tasks: Tasks | None = None

    def forwarded(self) -> list[int]:
        """Places of the rows that can move the weights."""
        return [
            place
            for place, (row, count) in enumerate(zip(self.rows, self.counts, strict=True))
            if count and (self.everything or row.has_signal)
        ]

    def weighed(self) -> list[Row]:
        """The same rows with each target's share of the loss."""
        mode, norm = self.loss.aggregation, self.loss.norm
        if self.tasks is None:
            weights = token_weights(self.counts, mode, norm=norm)
        else:
            of_row = [row.task for row in self.rows]
            weights = mixed_weights(self.counts, of_row, self.tasks, mode, norm=norm)
        return [replace(self.rows[place], weight=weights[place]) for place in self.forwarded()]

    def live(self) -> list[int]:
        """Places of the rows that count in the means."""
        return [place for place, count in enumerate(self.counts) if count]

    def score(
        self,
        model: Model,
        budget: int,
        field: Literal["old", "reference"],
        places: Sequence[int],
    ) -> None:
        """Fills a field of the rows at these places."""
        scored, _ = score(model, [self.rows[p] for p in places], budget, field)
        for place, row in zip(places, scored, strict=True):
            self.rows[place] = row

    def judge(self, objective: PolicyObjective) -> dict[str, float]:
        """Leaves out what the correction does not let pass of the rows that count, scored before.

        Returns stats over all of them: what was left out, and how far sampler and learner disagree.
        """
        sums: dict[str, float] = {}
        for place in self.live():
            row = self.rows[place]
            if row.old is None:
                raise ValueError("a row is judged by its log-probs at the start of the update")
            old, behaviour, fresh = (
                torch.from_numpy(values[row.target])
                for values in (row.old, row.behaviour, row.fresh)
            )
            verdict = judge(old - behaviour, objective.correction, objective.bounds)
            target = row.target.copy()
            target[row.target] = verdict.kept.numpy()
            self.rows[place] = replace(row, target=target)
            self.counts[place] = int(verdict.kept.sum())
            stats = {name: float(value) for name, value in gap_stats(old, behaviour, fresh).items()}
            stats["masked_tokens"] = float(len(old) - self.counts[place])
            stats["vetoed"] = float(verdict.vetoed)
            stats["rejected"] = float(verdict.rejected)
            add_stats(sums, stats)
        return sums

    def drop(self, places: Sequence[int]) -> list[str]:
        """Takes rows out, of the means too; their trajectories."""
        for place in places:
            self.counts[place] = 0
        return [self.rows[place].trajectory for place in places]

    def drop_unreadable(self, places: Sequence[int]) -> list[str]:
        """Takes out those of the rows whose inputs are not finite."""
        return self.drop([p for p in places if not inputs_are_finite(self.rows[p])])


def inputs_are_finite(row: Row) -> bool:
    """Whether what the loss reads of a row are numbers: advantage, temperature, log-probs."""
    read = (row.advantage, row.behaviour, row.temperature, row.old, row.reference)
    return all(values is None or np.isfinite(values[row.target]).all() for values in read)


def counts_of(rows: Sequence[Row], *, drop_silent: bool) -> list[int]:
    """Targets of each row; `drop_silent`: rows of groups without a signal have none."""
    return [0 if drop_silent and row.silent else row.count for row in rows]


def add_stats(sums: dict[str, float], stats: dict[str, float]) -> None:
    """Sums up; of what is named max_, the largest."""
    for name, value in stats.items():
        if name.startswith("max_"):
            sums[name] = max(sums.get(name, 0.0), value)
        else:
            sums[name] = sums.get(name, 0.0) + value
