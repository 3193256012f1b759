"""Which images of a step are fetched."""

from __future__ import annotations

from dataclasses import replace

from learner.errors import DataError
from learner.intake.images import load_images
from learner.vision.placed import Image
from tests.unit.learner.test_batch import model, seen, trajectory
from toolwright.types import BlobRef, Group


def test_each_once_and_none_that_nothing_was_written_after() -> None:
    """What no sampler was shown may be no image at all; a masked trajectory teaches nothing."""
    asked: list[str] = []

    def fetch(ref: BlobRef) -> bytes:
        asked.append(ref.sha256)
        return ref.sha256.encode()

    def image(name: str, data: bytes) -> Image:
        return Image(sha256=name, data=data, grid=(1, 1))

    members = (
        trajectory(seen(1, name="a"), model((3,)), seen(1, name="unseen")),
        trajectory(seen(1, name="a"), model((3,)), seen(1, name="b"), model((4,))),
        trajectory(seen(1, name="unread"), model((3,), on=False)),
        replace(trajectory(seen(1, name="masked"), model((3,))), masked=True),
    )
    groups = (Group(id="g", trajectories=members),)
    found = load_images(groups, fetch, image)
    assert asked == ["a", "b"]
    assert {name: one.data for name, one in found.images.items()} == {"a": b"a", "b": b"b"}
    assert (found.groups, found.masked) == (groups, ())


def test_who_was_shown_what_cannot_be_read_is_masked_and_nobody_else() -> None:
    def image(name: str, data: bytes) -> Image:
        if name == "bad":
            raise DataError("image bad cannot be read")
        return Image(sha256=name, data=data, grid=(1, 1))

    good = trajectory(seen(1, name="a"), model((3,)), seen(1, name="bad"))
    bad = replace(trajectory(seen(1, name="a"), model((3,)), seen(1, name="bad"), model((4,))))
    members = (replace(good, id="good"), replace(bad, id="bad"))
    found = load_images([Group(id="g", trajectories=members)], lambda ref: b"", image)
    assert found.masked == ("bad",)
    assert found.why == "image bad cannot be read"
    assert [one.masked for one in found.groups[0].trajectories] == [False, True]
    assert found.images.keys() == {"a"}
