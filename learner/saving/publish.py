"""New weights to the samplers by disk: a folder, then the engine's PublishWeights.

The folder <run folder>/policy/LINEAGE-STEP appears complete, and is on disk before the engine's
journal names it. The newest few stay: the samplers may still read the last one, and a restarted
engine reads it again.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from learner.disk import oldest_first
from learner.intake.client import EngineClient
from learner.model.policy import Policy
from learner.ranks import parallel
from toolwright.types import WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Result of a publish."""

    folder: Path
    """Folder of the weights; a publish by a group may still write it."""
    export_s: float
    """Time to export the weights, in seconds; includes the folder if the publish waits for it."""
    publish_s: float
    """Time of the engine's whole publish, in seconds."""
    paused_s: float
    """Length of the samplers' pause in it, in seconds."""
    more: dict[str, float] = field(default_factory=dict)
    """Metrics of a publish by a group."""


def folder_of(root: Path, version: WeightVersion) -> Path:
    """Folder of a version's weights."""
    return root / f"{version.lineage}-{version.step}"


class FolderPublisher:
    """Publishes versions of one run by folders. All ranks call `publish` and `republish`.

    client: rank 0's; None elsewhere. root: folder of the published folders. kept: number of folders
    that stay. adapters: the folders hold the policy's adapters alone.
    """

    def __init__(
        self, client: EngineClient | None, root: Path, *, kept: int, adapters: bool
    ) -> None:
        self._client = client
        self._adapters = adapters
        self._root = root
        self._kept = kept

    def publish(
        self, policy: Policy, version: WeightVersion, parent: WeightVersion | None = None
    ) -> Published:
        """Exports the policy as `version` and has the samplers load it.

        parent: version at which a new lineage left the old one.
        """
        started = time.monotonic()
        folder = folder_of(self._root, version)
        if self._adapters:
            policy.save_adapters(folder)
        else:
            policy.save(folder)
        return self._load(version, folder, parent, export_s=time.monotonic() - started)

    def republish(self, version: WeightVersion, folder: Path) -> Published:
        """Publishes the weights of a published folder as `version` too.

        For a step that did not move the weights. Nothing is written. The engine admits one batch a
        version, so it needs the new version.
        """
        return self._load(version, folder, None, export_s=0.0)

    def settle(self) -> None:
        """Returns when the last version has its folder: it has."""

    def _load(
        self, version: WeightVersion, folder: Path, parent: WeightVersion | None, *, export_s: float
    ) -> Published:
        started = time.monotonic()
        paused = 0.0
        if self._client is not None:
            paused = self._client.publish(version, parent, str(folder))
            delete_old(self._root, folder, self._kept)
        parallel.barrier()
        return Published(
            folder=folder,
            export_s=export_s,
            publish_s=time.monotonic() - started,
            paused_s=paused,
        )


def sweep(root: Path, newest: WeightVersion | None) -> None:
    """Removes folders of a learner that died during a publish. Rank 0 calls it before it publishes.

    They are unfinished folders, and versions after the engine's `newest` in the same lineage, which
    the engine never got.
    """
    for path in list(root.iterdir()) if root.is_dir() else []:
        lineage, _, step = path.name.rpartition("-")
        unpublished = (
            newest is not None
            and lineage == newest.lineage
            and step.isdecimal()
            and int(step) > newest.step
        )
        if path.is_dir() and (unpublished or path.name.startswith(".")):
            shutil.rmtree(path)


def delete_old(root: Path, newest: Path, kept: int) -> None:
    """Removes all folders but the newest `kept`."""
    found = (p for p in root.iterdir() if p.is_dir() and p != newest and p.name[0] != ".")
    others = oldest_first(newest, found)
    for path in others[: max(0, len(others) - kept + 1)]:
        shutil.rmtree(path)
