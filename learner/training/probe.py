"""Sampler/learner agreement when the training step does not show it.

Above staleness 0 a batch may have few tokens of the current weights. Groups without a signal may
not be forwarded at all. The probe then scores a few rows under the weights that wrote them, read
back from the published folder. It is the same comparison, of an earlier version.

These weights take the place of the weights in training while they score. A second model would use
the same device memory again, for the whole run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from learner.metrics import gap_of
from learner.model.policy import Model, borrowed_weights
from learner.ranks import parallel
from learner.saving.publish import folder_of
from learner.training.batch import Row, rows_of
from learner.training.step import score
from learner.vision.placed import Image
from toolwright.types import Group, WeightVersion


@dataclass(slots=True, kw_only=True)
class Probe:
    """Scores a few rows under the weights that wrote them."""

    rows: int
    """Largest number of rows to score."""
    budget: int
    """Tokens of a micro-batch."""
    temperature: float
    source: Path
    """Folder of step 0."""
    policies: Path
    """Folder of the published policies, for later steps."""
    elsewhere: dict[WeightVersion, Path] = field(default_factory=dict)
    """Folders of versions whose step did not move the weights: the folder of earlier weights."""

    def __call__(
        self,
        model: Model,
        groups: Sequence[Group],
        now: WeightVersion,
        images: Mapping[str, Image] | None = None,
    ) -> dict[str, float]:
        """Gap metrics, and the age of their version. All ranks call it.

        groups, images: on rank 0. Empty if no folder of a version that wrote them is left. The
        model's own weights are back afterwards, to the bit.
        """
        chosen = parallel.from_first(self._choose(groups, images) if parallel.is_first() else None)
        if chosen is None:
            return {}
        version, rows = chosen
        with borrowed_weights(model, self._folder(version)):
            _rows, sums = score(model, rows, self.budget, "old")
        return {**gap_of(sums), "gap_probe_age": float(now.step - version.step)}

    def _folder(self, version: WeightVersion) -> Path:
        if version.step == 0:
            return self.source
        return self.elsewhere.get(version) or folder_of(self.policies, version)

    def _choose(
        self, groups: Sequence[Group], images: Mapping[str, Image] | None
    ) -> tuple[WeightVersion, list[Row]] | None:
        trajectories = [t for g in groups for t in g.trajectories if not t.masked]
        written = Counter(v for t in trajectories for v in t.weight_versions)
        for version in sorted(written, key=lambda v: v.step, reverse=True):
            if not self.rows or not self._folder(version).is_dir():
                continue
            found = [
                replace(row, target=row.target & row.fresh)
                for t in trajectories
                if version in t.weight_versions
                for row in rows_of(t, temperature=self.temperature, version=version, images=images)
                if (row.target & row.fresh).any()
            ]
            if found:
                return version, found[: self.rows]
        return None
