"""The images of a step's groups, each fetched and decoded once.

An image that a sampler took and this learner cannot read does not end the run. Trajectories whose
policy was shown it are masked before rows are made, so no rank forwards it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from learner.errors import DataError
from learner.vision.placed import Image, read_images
from toolwright.types import BlobRef, Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class StepImages:
    """Images of one step."""

    images: Mapping[str, Image]
    """By hash, all that the policy read in trajectories that are trained on."""
    groups: tuple[Group, ...]
    """The step's groups; trajectories with an unreadable image are masked."""
    masked: tuple[str, ...] = ()
    """Ids of the trajectories that were masked for an image."""
    why: str = ""
    """Why the first such image cannot be read."""


def load_images(
    groups: Sequence[Group],
    fetch: Callable[[BlobRef], bytes],
    image: Callable[[str, bytes], Image],
) -> StepImages:
    """The images that the policy of this step was shown.

    fetch: `EngineClient.blob`. image: `vision.pixels.Pixels.whole`.
    """
    wanted = {
        ref.sha256: ref for group in groups for one in group.trajectories for ref in _shown(one)
    }
    images: dict[str, Image] = {}
    why: dict[str, str] = {}
    for name, ref in wanted.items():
        data = fetch(ref)
        try:
            images[name] = image(name, data)
        except DataError as error:
            why[name] = str(error)
    if not why:
        return StepImages(images=images, groups=tuple(groups))
    masked = tuple(
        one.id
        for group in groups
        for one in group.trajectories
        if any(ref.sha256 in why for ref in _shown(one))
    )
    return StepImages(
        images=images,
        groups=tuple(_without(group, {*masked}) for group in groups),
        masked=masked,
        why=next(iter(why.values())),
    )


def _shown(trajectory: Trajectory) -> Iterator[BlobRef]:
    """Files that the policy read; nothing for a masked trajectory."""
    if not trajectory.masked:
        for sequence in trajectory.sequences:
            yield from (ref.blob for _start, ref in read_images(sequence))


def _without(group: Group, masked: set[str]) -> Group:
    members = tuple(
        replace(one, masked=True) if one.id in masked else one for one in group.trajectories
    )
    return replace(group, trajectories=members)
