"""Sampler/learner agreement where training itself does not show it.

Above staleness 0 a batch may hold few tokens of the current weights, and groups without signal
may not be forwarded at all. The probe then scores a few rows under the very weights that wrote
them, read back from the published folder: the same comparison, only of an earlier version.

They take the place of the weights in training while they score. A second model would hold as much
of the device again, for the whole run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from learner.metrics import gap_of
from learner.model.policy import Model, lent_weights
from learner.ranks import parallel
from learner.saving.publish import folder_of
from learner.training.batch import Row, rows_of
from learner.training.step import score
from learner.vision.shown import Image
from toolwright.types import Group, WeightVersion


@dataclass(slots=True, kw_only=True)
class Probe:
    """Which rows are scored under which weights.

    rows: most rows to score. source: the folder of step 0; later ones lie under policies, but for
    versions that a step without an update gave to the weights of another folder (elsewhere).
    """

    rows: int
    budget: int
    temperature: float
    source: Path
    policies: Path
    elsewhere: dict[WeightVersion, Path] = field(default_factory=dict)

    def __call__(
        self,
        model: Model,
        groups: Sequence[Group],
        now: WeightVersion,
        images: Mapping[str, Image] | None = None,
    ) -> dict[str, float]:
        """Gap values, and how many versions old they are. All ranks call it; groups, and the
        images that their policy was shown, on rank 0.

        Empty where no folder of any writing version is left. The model's weights are its own again
        afterwards, to the bit.
        """
        chosen = parallel.from_first(self._choose(groups, images) if parallel.is_first() else None)
        if chosen is None:
            return {}
        version, rows = chosen
        with lent_weights(model, self._folder(version)):
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
