"""The part of a group that is still fresh enough to train a version. Pure.

Invariants
- The sent bytes depend only on the stored group, the version, the forks and the bound: the same
  lease request gives the same bytes.
- A group without old segments is the stored one, and its members are not parsed.
- Only `trainable` changes, and only from true to false. Tokens, log-probs, versions, rewards and
  the stop reason stay as recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from engine.serving.admission.capacity import staleness
from engine.serving.journal.journal import StoredGroup
from toolwright.common.v1 import trajectory_pb2 as pb
from toolwright.types import WeightVersion
from toolwright.wire import content_hash, serialize, version_from_proto


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshGroup:
    """A group as it may be trained on."""

    group: StoredGroup
    old_segments: int = 0
    """Segments that left the loss because they are too old."""
    old_tokens: int = 0
    """Tokens of these segments."""


def without_stale(group: StoredGroup, old: frozenset[WeightVersion]) -> FreshGroup | None:
    """The group with the segments of the versions in `old` excluded from the loss.

    None if no member keeps a token that carries loss. Parses all members unless `old` is empty.
    """
    if not old:
        return FreshGroup(group=group)
    members: list[bytes] = []
    segments, tokens, trained = 0, 0, 0
    for raw in group.members:
        member = pb.Trajectory.FromString(raw)
        changed = False
        for segment in _trainable(member):
            wrote = segment.HasField("weight_version")
            if wrote and version_from_proto(segment.weight_version) in old:
                segment.trainable = False
                changed = True
                segments += 1
                tokens += segment.token_count
            elif not member.masked:
                trained += segment.token_count
        members.append(serialize(member) if changed else raw)
    if not trained:
        return None
    sent = replace(group, members=tuple(members), hash=content_hash(members))
    return FreshGroup(group=sent, old_segments=segments, old_tokens=tokens)


def stale_versions(
    wrote: Iterable[WeightVersion],
    version: WeightVersion,
    forks: Mapping[str, WeightVersion],
    bound: int,
) -> frozenset[WeightVersion]:
    """The versions that are more than `bound` optimizer steps away from `version`.

    A version without a common ancestor counts as old: some samplers took it and another refused, so
    it was never published.
    """

    def is_stale(sampled: WeightVersion) -> bool:
        try:
            return staleness(version, sampled, forks) > bound
        except ValueError:
            return True

    return frozenset(one for one in wrote if is_stale(one))


def _trainable(member: pb.Trajectory) -> Iterable[pb.Segment]:
    return (s for sequence in member.sequences for s in sequence.segments if s.trainable)
