"""Which worker holds a session: rendezvous hashing, and what it says after a worker was replaced.

A session is opened at its *target*, the living worker with the highest score for its id, and
stays there. Scores depend on slots, not on processes, so a replacement takes over its
predecessor's share of new sessions, and nothing else moves (Thaler and Ravishankar, "Using
name-based mappings to increase hit rates", IEEE/ACM Trans. Networking 6(1), 1998).

While a slot was empty, its share was opened elsewhere and still lives there. Such a session can
only be at a worker that is older than its target: had the target lived, it would have got it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A living worker."""

    slot: int
    joined: int
    """Epoch of the first view that it was in."""
    endpoint: str
    """Where clients reach it."""
    link: str
    """Where its siblings do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Who lives, as the supervisor said last. Epochs count up from 1."""

    epoch: int
    members: tuple[Member, ...]

    def target(self, session_id: str) -> Member:
        """The worker at which a session of this id is to be opened."""
        return max(self.members, key=lambda member: score(session_id, member.slot))

    def elders(self, session_id: str) -> tuple[Member, ...]:
        """Workers at which it may be open already, the target apart."""
        target = self.target(session_id)
        return tuple(member for member in self.members if member.joined < target.joined)

    def siblings(self, slot: int) -> tuple[Member, ...]:
        """All members but the one in `slot`."""
        return tuple(member for member in self.members if member.slot != slot)


def score(session_id: str, slot: int) -> bytes:
    """Compared as it is; the same in every process and on every machine."""
    return blake2b(session_id.encode(), digest_size=8, salt=slot.to_bytes(8, "big")).digest()


def share(total: int, workers: int) -> int:
    """Sessions that one of `workers` has to take, so that `total` fit in all.

    Hashing does not deal out evenly: a worker's number is binomial, and four standard deviations
    above its mean leave less than one chance in ten thousand that a worker is full before the
    service is.
    """
    part = 1 / workers
    return min(total, math.ceil(total * part + 4 * math.sqrt(total * part * (1 - part))))
