"""Lineages of weight versions as a history shows them, and distances between versions.

A lineage opens where the learner restored a checkpoint, or at step 0, which leaves the run's first
version. Steps count on along a fork, so a distance is the way down to the last common version and
up again. Before the first request servers may load weights of their own; the first policy is what
the first request ran under, or what was loaded last before anything was published.
"""

from __future__ import annotations

from bench.history.events import Loaded, Offered, Published, Publishing, Restored, Sampled, Trained
from toolwright.types import WeightVersion


class Lineages:
    """Call `see` with every event of its kinds, in order."""

    def __init__(self) -> None:
        self._parents: dict[str, WeightVersion | None] = {}
        """Lineage to the version that it left; the first lineage has None."""
        self.first = ""
        """The lineage of the first policy."""
        self._loaded = ""
        self._newest = ""
        """Lineage that the learner is in."""
        self._restored: WeightVersion | None = None
        self._distances: dict[tuple[WeightVersion, WeightVersion], int | None] = {}

    def see(
        self, event: Loaded | Sampled | Publishing | Published | Trained | Restored | Offered
    ) -> None:
        """Learns lineages and their forks."""
        if self._loaded and not isinstance(event, Loaded | Sampled):
            self._open(self._loaded, None)
            self._loaded = ""
        match event:
            case Restored():
                self._restore(WeightVersion(lineage=event.lineage, step=event.step))
            case Publishing():
                self._enter(event.version, event.parent)
            case Trained():
                self._enter(WeightVersion(lineage=event.lineage, step=event.step), None)
            case Published() | Offered():
                self._enter(event.version, None)
            case Sampled():
                if not self._parents:
                    self._enter(event.version, None)
            case Loaded():
                if not self._parents:
                    self._loaded = event.version.lineage

    def distance(self, one: WeightVersion, other: WeightVersion) -> int | None:
        """Optimizer steps between two versions; None without a common ancestor."""
        key = one, other
        if key not in self._distances:
            self._distances[key] = self._distance(one, other)
        return self._distances[key]

    def _distance(self, one: WeightVersion, other: WeightVersion) -> int | None:
        way = self._way(one)
        for lineage, step in self._way(other).items():
            if lineage in way:
                fork = min(step, way[lineage])
                return (one.step - fork) + (other.step - fork)
        return None

    def _way(self, version: WeightVersion) -> dict[str, int]:
        """From a version to the first lineage: each lineage, and the step at which the way leaves
        it."""
        found: dict[str, int] = {}
        at: WeightVersion | None = version
        while at is not None and at.lineage not in found:
            found[at.lineage] = at.step
            at = self._parents.get(at.lineage)
        return found

    def _restore(self, version: WeightVersion) -> None:
        if version.lineage in self._parents or not self._newest:
            self._restored = version
        else:  # the observer names the lineage that opens
            left = WeightVersion(lineage=self._newest, step=version.step)
            self._enter(version, left)

    def _enter(self, version: WeightVersion, parent: WeightVersion | None) -> None:
        lineage = version.lineage
        if lineage not in self._parents:
            start = WeightVersion(lineage=self.first, step=0)
            self._open(lineage, parent or self._restored or (start if version.step == 0 else None))
            self._restored = None
        self._newest = lineage
        self._loaded = ""

    def _open(self, lineage: str, left: WeightVersion | None) -> None:
        if not self.first:
            self.first, left = lineage, None
        self._parents[lineage] = left
        self._newest = lineage
        self._distances.clear()
