"""New weights to the samplers by disk: a folder, then the engine's PublishWeights.

The folder <run folder>/policy/LINEAGE-STEP appears whole, and is on the disk before the engine's
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
    """Where the weights lie, or will soon. Seconds: of getting them out of the model (and onto the
    disk, where that is waited for), the engine's whole publish, the samplers' pause in it. more:
    what is known of a publish by a group."""

    folder: Path
    export_s: float
    publish_s: float
    paused_s: float
    more: dict[str, float] = field(default_factory=dict)


def folder_of(root: Path, version: WeightVersion) -> Path:
    """Where a version's weights lie."""
    return root / f"{version.lineage}-{version.step}"


def publish(
    policy: Policy,
    client: EngineClient | None,
    root: Path,
    version: WeightVersion,
    *,
    parent: WeightVersion | None = None,
    kept: int,
) -> Published:
    """Exports the policy as `version` and has the samplers load it. All ranks call it.

    client: rank 0's; None elsewhere. parent: where a new lineage left the old one. kept: how many
    folders stay.
    """
    started = time.monotonic()
    folder = folder_of(root, version)
    policy.save(folder)
    exported = time.monotonic()
    paused = 0.0
    if client is not None:
        paused = client.publish(version, parent, str(folder))
        forget_old(root, folder, kept)
    parallel.barrier()
    return Published(
        folder=folder,
        export_s=exported - started,
        publish_s=time.monotonic() - exported,
        paused_s=paused,
    )


def advance(client: EngineClient | None, version: WeightVersion, folder: Path) -> Published:
    """Calls the weights of a published folder `version` too. All ranks call it.

    For a step that did not move the weights: nothing is written, and the engine, which admits one
    batch a version, goes on.
    """
    started = time.monotonic()
    paused = client.publish(version, None, str(folder)) if client is not None else 0.0
    parallel.barrier()
    return Published(
        folder=folder, export_s=0.0, publish_s=time.monotonic() - started, paused_s=paused
    )


def sweep(root: Path, newest: WeightVersion | None) -> None:
    """Removes what a learner left that died while it published. Rank 0, before it publishes.

    That is: folders that were not written to their end, and versions after `newest`, the engine's,
    in the same lineage: nobody was told of them.
    """
    for path in list(root.iterdir()) if root.is_dir() else []:
        lineage, _, step = path.name.rpartition("-")
        untold = (
            newest is not None
            and lineage == newest.lineage
            and step.isdecimal()
            and int(step) > newest.step
        )
        if path.is_dir() and (untold or path.name.startswith(".")):
            shutil.rmtree(path)


def forget_old(root: Path, newest: Path, kept: int) -> None:
    """Removes all folders but `kept`, the newest among them."""
    found = (p for p in root.iterdir() if p.is_dir() and p != newest and p.name[0] != ".")
    others = oldest_first(newest, found)
    for path in others[: max(0, len(others) - kept + 1)]:
        shutil.rmtree(path)
