"""Segments of a record without copies. Pure.

The same as `Trajectory.segments`, on the message: pages read records without converting them.
"""

from __future__ import annotations

from collections.abc import Iterator

from toolwright.common.v1 import trajectory_pb2 as pb


def own_segments(message: pb.Trajectory) -> Iterator[pb.Segment]:
    """Segments of all sequences in order, without the copies that a fork inside of the trajectory
    makes."""
    known = {sequence.id for sequence in message.sequences}
    for sequence in message.sequences:
        at, shared = 0, sequence.fork_offset if sequence.parent in known else 0
        for segment in sequence.segments:
            if at >= shared:
                yield segment
            at += segment.token_count
