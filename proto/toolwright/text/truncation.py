"""How an observation that is too long is cut: by tokens in the engine, by characters in the tool
service.

One formula for both (`verltool.truncate_observation`): the marker counts into the limit.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Keep = Literal["head", "middle", "tail"]
"""Which part stays: the beginning; beginning and end; the end."""


class Cut(NamedTuple):
    """The first `front` and the last `back` units stay, the marker between them if `marked`."""

    front: int
    back: int
    marked: bool


def cut(length: int, *, limit: int, marker: int, keep: Keep) -> Cut | None:
    """How to bring `length` units down to `limit`, a marker of `marker` units included; None if
    they fit.

    keep = head: the first limit - marker, then the marker; tail: the marker, then the last;
    middle: the ceil half, the marker, the floor half. A marker above the limit is left out.
    """
    if length <= limit:
        return None
    room = limit - marker
    if room < 0:
        return Cut(0, limit, False) if keep == "tail" else Cut(limit, 0, False)
    if keep == "head":
        return Cut(room, 0, True)
    if keep == "tail":
        return Cut(0, room, True)
    return Cut((room + 1) // 2, room // 2, True)
