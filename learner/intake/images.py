"""The images of a step's groups, each fetched once however many trajectories were shown it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from learner.vision.shown import Image, read_images
from toolwright.types import BlobRef, Group


def fetch_images(
    groups: Sequence[Group],
    fetch: Callable[[BlobRef], bytes],
    image: Callable[[str, bytes], Image],
) -> dict[str, Image]:
    """By hash, all that the policy read in trajectories that are trained on.

    fetch: `EngineClient.blob`. image: `vision.pixels.Pixels.image`, which knows its grid.
    """
    wanted = {
        ref.blob.sha256: ref.blob
        for group in groups
        for trajectory in group.trajectories
        if not trajectory.masked
        for sequence in trajectory.sequences
        for _start, ref in read_images(sequence)
    }
    return {name: image(name, fetch(blob)) for name, blob in wanted.items()}
