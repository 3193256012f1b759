"""Whose the run is: one learner at a time leases, publishes and acknowledges.

A learner makes up a word for its process and names it at its start (GetPolicy). The run is its own
from then on, and whoever had it before is refused for good. The newest claim wins, since a learner
that was killed and started again must be let in and nobody can tell a dead process from a silent
one: one that trains says nothing for an hour. So two that live never interleave, and of two that
are started by mistake the older one ends with a sentence.

Invariants
- The journal knows a claim before the learner does, so it outlives the engine.
- A word that was superseded never counts again, however late its requests arrive: the journal
  remembers the last 256.
- While nobody has claimed the run (learners of an older version do not), nobody is refused.
"""

from __future__ import annotations

import asyncio

from engine.serving.journal.journal import Journal
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError

LONGEST_WORD = 200
"""Characters; the journal keeps it."""
_FIX = "let one learner train a run: end this one, or end the other one and start this one again"


class Claims:
    """The learners that the run has had; the newest is the one that has it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = asyncio.Lock()

    async def take(self, learner: str) -> None:
        """Gives the run to `learner`. ServiceError for one that was superseded."""
        if len(learner) > LONGEST_WORD:
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                f"a learner's word has {len(learner)} characters; {LONGEST_WORD} are the most",
                subject="learner",
            )
        async with self._lock:
            if learner in self._journal.learners:
                self.check(learner)
            else:
                await self._journal.add_learner(learner)

    def check(self, learner: str) -> None:
        """ServiceError unless the run is this learner's, or nobody's."""
        if not self._journal.learners or learner == self._journal.learners[-1]:
            return
        if not learner:
            why = "the run belongs to a learner that named itself, this request names none"
        elif learner in self._journal.learners:
            why = "another learner has taken the run over"
        else:
            why = "the run belongs to another learner, this one never asked for the policy"
        raise ServiceError(
            reasons.ERROR_REASON_SUPERSEDED, why, subject=learner or "learner", fix=_FIX
        )
