"""The images of a step's groups, each fetched and decoded once, whoever was shown it.

A file that a sampler took and this learner cannot read ends no run: trajectories whose policy was
shown it are masked before anything is made of them, so no rank ever forwards it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from learner.errors import DataError
from learner.vision.shown import Image, read_images
from toolwright.types import BlobRef, Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """images: by hash, all that the policy read in trajectories that are trained on. groups: the
    step's, with those masked that were shown one that cannot be read. masked: their ids. why: of
    the first such image."""

    images: Mapping[str, Image]
    groups: tuple[Group, ...]
    masked: tuple[str, ...] = ()
    why: str = ""


def see(
    groups: Sequence[Group],
    fetch: Callable[[BlobRef], bytes],
    image: Callable[[str, bytes], Image],
) -> Seen:
    """What this step's policy was shown.

    fetch: `EngineClient.blob`. image: `vision.pixels.Pixels.whole`, which knows its grid.
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
        return Seen(images=images, groups=tuple(groups))
    masked = tuple(
        one.id
        for group in groups
        for one in group.trajectories
        if any(ref.sha256 in why for ref in _shown(one))
    )
    return Seen(
        images=images,
        groups=tuple(_without(group, {*masked}) for group in groups),
        masked=masked,
        why=next(iter(why.values())),
    )


def _shown(trajectory: Trajectory) -> Iterator[BlobRef]:
    """Files that the policy read, of a trajectory that is trained on."""
    if not trajectory.masked:
        for sequence in trajectory.sequences:
            yield from (ref.blob for _start, ref in read_images(sequence))


def _without(group: Group, masked: set[str]) -> Group:
    members = tuple(
        replace(one, masked=True) if one.id in masked else one for one in group.trajectories
    )
    return replace(group, trajectories=members)
