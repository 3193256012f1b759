"""Which part of a group is still fresh enough to be trained on at a version; pure.

Invariants
- Bytes that are sent depend on the stored group, the version, the forks and the bound alone: the
  same lease request gives the same bytes.
- A group without old segments is the stored one, and no member of it is parsed.
- Only `trainable` changes, and only from true to false: tokens, log-probs, versions, rewards and
  the reason of the stop stay as they were recorded.
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
class FreshPart:
    """A group as it may be trained on.

    old_segments, old_tokens: how many left the loss because they are too old.
    """

    group: StoredGroup
    old_segments: int = 0
    old_tokens: int = 0


def without_old(group: StoredGroup, old: frozenset[WeightVersion]) -> FreshPart | None:
    """The group with segments of the versions in `old` out of the loss.

    None where no member has a token left that carries loss. Parses all members unless `old` is
    empty.
    """
    if not old:
        return FreshPart(group=group)
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
    return FreshPart(group=sent, old_segments=segments, old_tokens=tokens)


def old_versions(
    wrote: Iterable[WeightVersion],
    version: WeightVersion,
    forks: Mapping[str, WeightVersion],
    bound: int,
) -> frozenset[WeightVersion]:
    """The versions that are more than `bound` optimizer steps away from `version`.

    A version without a common ancestor counts as old: some samplers took it and another refused,
    so that it was never published.
    """

    def is_old(sampled: WeightVersion) -> bool:
        try:
            return staleness(version, sampled, forks) > bound
        except ValueError:
            return True

    return frozenset(one for one in wrote if is_old(one))


def _trainable(member: pb.Trajectory) -> Iterable[pb.Segment]:
    return (s for sequence in member.sequences for s in sequence.segments if s.trainable)
