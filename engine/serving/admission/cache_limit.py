"""How many trajectories the samplers' prefix caches carry. A pure state machine of numbers.

A trajectory's tokens should stay in the cache from turn to turn, also while a tool runs: computing
them again costs more than the turn. So the trajectories whose tokens fit in a budget go on, oldest
first, and each later one waits before its next action. The budget is a share of the servers' cache
and follows what they report.

Invariants
- The oldest trajectory always goes on. Each trajectory is the oldest at some time, so every wait
  ends, and groups complete in the order of their admission.
- A trajectory that waits keeps its record, its session and its place in the staleness bound.
- Without a reported cache size no trajectory waits until a server has lost tokens. Then the budget
  is what was in flight.
- Tokens that new weights or a wait made the servers drop are not counted as lost.

It owns no task, no clock and no client. Keys sort in the order of admission.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

FILLS = 1.1
"""Budget for admissions by the budget: the youngest wait if it comes to that, and a wait costs one
prefill."""
IDLE_WEIGHT = 0.65
"""Part of a trajectory's tokens that counts while its tool runs. The servers can drop them for
others: that is worth while if many wait for slow tools."""
LEAST_SHARE, MOST_SHARE = 0.3, 4.0
CUT, TRIM, GROW = 0.85, 0.95, 1.03
"""Factors of one step: after retractions, if servers compute lost tokens, and if they have room for
more."""
LOST, MOST_LOST = 0.05, 0.3
"""Lost tokens by computed prompt tokens: less than the first is noise, more than the second slows
even servers without a queue."""
BUSY, IDLE = 0.25, 0.1
"""A server is busy, or idle, if more, or fewer, of the looks see a queue."""
LOOKS_MEMORY = 0.98
"""Weight of earlier looks: the last fifty count."""
MEMORY = 0.95
"""Weight of earlier trajectories in the usual length."""
TESTED = 0.9
"""The budget grows only while so much of it is in use."""
MORE = 0.25
"""A trajectory that is longer than usual will likely grow by this part of the usual length."""


@dataclass(slots=True)
class _Member:
    """One trajectory in flight."""

    length: int = 0
    """Tokens that a server has of it, or will have with its next action."""
    known: int = 0
    """Tokens that its server had after its last action."""
    weights: str = ""
    turns: int = 0
    idle: bool = False
    """Its action is whole, and its tool runs."""
    waited: bool = False
    """It waited since its last action, so the servers may have dropped its tokens."""

    @property
    def needs(self) -> float:
        """Tokens that count in the budget."""
        return IDLE_WEIGHT * self.length if self.idle else float(self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One action, as its server reported it."""

    prompt: int
    """Tokens of the prompt."""
    tokens: int
    """Tokens of the action."""
    cached: int | None
    """Prompt tokens that the cache had; None if the server does not report them."""
    retractions: int = 0
    weights: str = ""
    """Version that wrote the action; "" if several did."""


class CacheLimit:
    """The trajectories in flight, the budget, and the number that may be in flight."""

    def __init__(self, *, most: int, longest: int) -> None:
        """most: trajectories in flight, whatever the caches carry. longest: tokens of the longest
        possible trajectory, which is the usual length until one has ended."""
        self.most = most
        self.capacity = 0
        """Tokens of all caches; 0 = unknown."""
        self.share = 1.0
        """Budget by capacity."""
        self.lost = self.retractions = 0
        """Tokens that were computed again, and retracted requests, so far."""
        self.resident = 0
        """Tokens of all trajectories in flight."""
        self._idle = 0
        """Those of them whose trajectories' tools run."""
        self._members: dict[str, _Member] = {}
        self._order: list[str] = []
        self._usual = float(longest)
        self._ended = 0
        self._new_lost = self._new_computed = self._new_retractions = 0
        self._queue = (BUSY + IDLE) / 2
        """Share of the looks that saw a queue."""
        self._looks = 0
        self._guessed = False
        """Whether `capacity` is what was in flight when tokens were first lost."""
        self._last: str | None = None
        """The youngest trajectory that goes on; None = it must be found again."""

    # ---- what the caller asks ----

    @property
    def budget(self) -> float:
        """Tokens of the trajectories that may go on; 0 = no bound yet."""
        return self.share * self.capacity

    @property
    def _needed(self) -> float:
        """Tokens that count in the budget."""
        return self.resident - (1 - IDLE_WEIGHT) * self._idle

    def limit(self) -> int:
        """Number of trajectories that may be in flight."""
        if not self.capacity:
            return self.most
        return min(self.most, max(1, len(self._members) + self._fitting()))

    def goes_on(self, key: str) -> bool:
        """Whether a trajectory may begin its next action now."""
        if not self.budget or self._needed <= self.budget or key not in self._members:
            return True
        if self._last is None:
            self._last = self._youngest_that_goes_on()
        if key <= self._last:
            return True
        self._members[key].waited = True
        return False

    def _youngest_that_goes_on(self) -> str:
        older = 0.0
        for name in self._order:
            older += self._members[name].needs
            if older > self.budget:
                break
        return name

    # ---- what happens ----

    def asks(self, key: str, length: int) -> None:
        """A trajectory wants its next action after a prompt of `length` tokens."""
        member = self._members.get(key)
        if member is None:
            member = self._members[key] = _Member()
            insort(self._order, key)
        self._set(member, length, idle=False)

    def acted(self, key: str, turn: Turn) -> None:
        """Its action is whole."""
        member = self._members.get(key)
        if member is None:
            return
        self._count(member, turn)
        member.known = turn.prompt + turn.tokens
        member.weights, member.waited = turn.weights, False
        member.turns += 1
        self._set(member, member.known, idle=True)

    def ends(self, key: str) -> None:
        """The trajectory's attempt is over."""
        member = self._members.pop(key, None)
        if member is None:
            return
        del self._order[bisect_left(self._order, key)]
        if member.turns:
            self._ended += 1
            weight = max(1 / self._ended, 1 - MEMORY)
            self._usual += weight * (member.length - self._usual)
        self._set(member, 0, idle=False)

    def _set(self, member: _Member, length: int, *, idle: bool) -> None:
        """Sets a trajectory's tokens, and both sums with them."""
        self._last = None
        self.resident += length - member.length
        self._idle += length * idle - member.length * member.idle
        member.length, member.idle = length, idle

    def looked(self, *, capacity: int, queued: bool) -> None:
        """A look at the servers that are up. capacity: tokens of their caches, 0 if they do not
        report it. queued: whether requests wait at half of the servers."""
        self._queue += (1 - LOOKS_MEMORY) * (queued - self._queue)
        self._looks += 1
        self._last = None
        if capacity:
            self.capacity, self._guessed = capacity, False

    def step(self) -> None:
        """Adapts the budget to what happened since the last step."""
        self._last = None
        lost = self._new_lost / max(self._new_computed, 1)
        if not self.capacity and lost > LOST:
            self.capacity, self._guessed = self.resident, True
        if self._new_retractions:
            self._scale(CUT)
        elif lost > MOST_LOST or (lost > LOST and self._queue > BUSY):
            self._scale(TRIM)
        elif self._may_grow(lost):
            if self._guessed:
                self.capacity = int(self.capacity * GROW) + 1
            else:
                self._scale(GROW)
        self._new_lost = self._new_computed = self._new_retractions = 0

    def _may_grow(self, lost: float) -> bool:
        """Whether the budget is in use, and servers have time for more than they lose."""
        used = self._needed > TESTED * self.budget
        idle = self._queue < IDLE or not self._looks
        return used and idle and lost < LOST / 5

    def _count(self, member: _Member, turn: Turn) -> None:
        if turn.cached is None:
            return
        self._new_computed += max(0, turn.prompt - turn.cached)
        published = not turn.weights or (member.turns > 0 and turn.weights != member.weights)
        if published:
            return
        self.retractions += turn.retractions
        self._new_retractions += turn.retractions
        if member.turns and not member.waited and turn.prompt >= member.known:
            lost = max(0, member.known - turn.cached)
            self.lost += lost
            self._new_lost += lost

    def _fitting(self) -> int:
        """Number of new trajectories that fit.

        All grow alike, each until its likely end. So after a growth of x tokens those in flight
        have sum(length + x) over those that have not ended. New ones have x each, and the sum must
        stay in the budget at all times.
        """
        lengths = sorted(member.length for member in self._members.values())
        usual = max(self._usual, 1.0)
        ends = sorted((max(usual - length, MORE * usual), length) for length in lengths)
        left, total = len(ends), float(sum(lengths))
        room, fits = FILLS * self.budget * self._dilution, float(self.most)
        for grown, length in ends:
            # Just before this one ends: the sum is largest there.
            free = room - (total + left * grown)
            fits = min(fits, free / min(max(grown, 1.0), usual))
            left -= 1
            total -= length
        # After all of them: the new ones at their ends.
        fits = min(fits, room / usual)
        return max(0, int(fits))

    @property
    def _dilution(self) -> float:
        """Tokens in flight by those that count."""
        return self.resident / self._needed if self._members else 1.0

    def _scale(self, factor: float) -> None:
        self.share = min(max(self.share * factor, LEAST_SHARE), MOST_SHARE)
