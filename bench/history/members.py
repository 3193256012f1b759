"""A record as a member of an offered group."""

from __future__ import annotations

from bench.history.events import Member, Segment
from toolwright.types import Status, Trajectory


def member_of(record: Trajectory, attempt: str = "") -> Member:
    """A record as a member of an offered group. attempt: TRAJECTORY/NAME; read from the record's
    calls if it is not given."""
    if not attempt and record.calls:
        attempt = record.calls[-1].call_id.rsplit("/", 2)[0]
    branch = record.sequences[0] if record.sequences and record.sequences[0].parent else None
    return Member(
        trajectory=record.id,
        attempt=attempt,
        masked=record.masked,
        errored=record.status is Status.ERRORED,
        calls=tuple(call.call_id for call in record.calls),
        actions=tuple(call.action for call in record.calls),
        parent=(branch.parent or "").removesuffix(".0") if branch else "",
        shared=(branch.fork_offset or 0) if branch else 0,
        segments=tuple(
            Segment(
                author=segment.author.name,
                token_ids=segment.token_ids,
                turn=segment.turn,
                version=segment.weight_version,
                trainable=segment.trainable,
            )
            for segment in record.segments
        ),
    )
