"""Weights that the run serves, and which version may follow. Pure.

Steps only grow along a lineage, and lineages form a tree. A new lineage names the version at which
it left its parent. Or it begins at step 0 and leaves the run's first version. A lineage that was
left is over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from engine.serving.publish.policy_shape import PolicyShape
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedWeights:
    """The run's weights between two publishes."""

    version: WeightVersion
    """Version that every sampler has."""
    folder: tuple[WeightVersion, Path]
    """The newest folder, and the version of its weights."""
    shape: PolicyShape | None
    """The policy that the samplers serve; None if the engine cannot read its folder."""
    without_folder: tuple[WeightVersion, ...] = ()
    """Later versions, which came over a group, oldest first."""
    given: WeightVersion | None = None
    """The last version that samplers got over a group before the engine's start."""

    @property
    def newest(self) -> WeightVersion:
        """The newest version that samplers got. It is `version`, unless an earlier life of the
        engine ended before the folder of a later one came."""
        if self.given is not None and self.precedes(self.given) and self.continues(self.given):
            return self.given
        return self.version

    def continues(self, version: WeightVersion) -> bool:
        """Whether the version belongs to the lineage that is served."""
        return version.lineage == self.version.lineage

    def precedes(self, version: WeightVersion) -> bool:
        """Whether the version opens a lineage, or is a later step."""
        return not self.continues(version) or version.step > self.version.step

    def moved(self, version: WeightVersion, path: Path, shape: PolicyShape) -> ServedWeights:
        """After samplers loaded the folder of a version."""
        return replace(
            self, version=version, folder=(version, path), shape=shape, without_folder=()
        )

    def received(self, version: WeightVersion) -> ServedWeights:
        """After samplers got a version over a group, whose folder follows."""
        return replace(self, version=version, without_folder=(*self.without_folder, version))

    def named(self, version: WeightVersion, path: Path, shape: PolicyShape) -> ServedWeights:
        """After the folder of a version that came over a group. It stands for earlier ones too."""
        later = tuple(one for one in self.without_folder if one.step > version.step)
        return replace(self, folder=(version, path), shape=shape, without_folder=later)


def check_next(
    served: ServedWeights,
    version: WeightVersion,
    parent: WeightVersion | None,
    *,
    known: tuple[str, ...],
    acknowledged: int,
) -> WeightVersion | None:
    """The parent of a new lineage; None if the lineage goes on.

    known: lineages of the run, the first one first. acknowledged: sequence number up to which
    groups are gone. Raises ServiceError for a version that is not next.
    """
    resumed = "a resume from an older checkpoint opens a new lineage"
    if served.continues(version):
        if served.precedes(version):
            return None
        raise ServiceError(
            reasons.ERROR_REASON_WRONG_VERSION,
            f"{version} is not newer than {served.version}",
            subject=str(version),
            fix=resumed,
        )
    if version.lineage in known:
        raise _wrong_lineage(
            version.lineage,
            f"lineage {version.lineage} was left for {served.version.lineage}",
            resumed,
        )
    if parent is not None:
        if parent.lineage in known:
            return parent
        raise _wrong_lineage(
            parent.lineage,
            f"{version} names {parent} as its parent, which was never published here",
            "use the run.folder that the checkpoint belongs to, or a new one",
        )
    if version.step > 0:
        raise _wrong_lineage(
            version.lineage,
            f"{version} opens a lineage and names no parent; current is {served.version}",
        )
    if acknowledged > 0:
        raise _wrong_lineage(
            version.lineage,
            f"groups up to {acknowledged} are acknowledged and gone, but the learner begins anew",
            "restore the learner's checkpoint or use a new run.folder",
        )
    return WeightVersion(lineage=known[0], step=0)


def _wrong_lineage(lineage: str, message: str, fix: str = "") -> ServiceError:
    return ServiceError(reasons.ERROR_REASON_WRONG_LINEAGE, message, subject=lineage, fix=fix)
