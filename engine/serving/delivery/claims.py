"""The claim on a run: one learner at a time leases, publishes and acknowledges.

A learner makes up a word for its process and names it at its start (GetPolicy). From then on the
run belongs to that learner, and the learner before is refused for good. The newest claim wins: a
learner that was killed and restarted must be admitted. A dead process looks like a silent one, and
a learner that trains may be silent for an hour. So two live learners never interleave. If two are
started by mistake, the older one ends with a message.

Invariants
- The journal knows a claim before the learner does, so the claim outlives the engine.
- A superseded word never counts again, however late its requests arrive: the journal remembers the
  last 256.
- Before the first claim no learner is refused; learners of an older version make no claim.
"""

from __future__ import annotations

import asyncio

from engine.serving.journal.journal import Journal
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError

LONGEST_WORD = 200
"""Longest word, in characters; the journal keeps it."""
_FIX = "let one learner train a run: end this one, or end the other one and start this one again"


class Claims:
    """The learners that claimed the run; the newest one has it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = asyncio.Lock()

    async def take(self, learner: str) -> None:
        """Gives the run to `learner`. Raises ServiceError for one that was superseded."""
        if len(learner) > LONGEST_WORD:
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                f"a learner's word has {len(learner)} characters, the limit is {LONGEST_WORD}",
                subject="learner",
            )
        async with self._lock:
            if learner in self._journal.learners:
                self.check(learner)
            else:
                await self._journal.add_learner(learner)

    def check(self, learner: str) -> None:
        """Raises ServiceError if the run belongs to another learner."""
        if not self._journal.learners or learner == self._journal.learners[-1]:
            return
        if not learner:
            why = "the run belongs to a learner, and this request names no learner"
        elif learner in self._journal.learners:
            why = "another learner has taken the run over"
        else:
            why = "the run belongs to another learner, this one never called GetPolicy"
        raise ServiceError(
            reasons.ERROR_REASON_SUPERSEDED, why, subject=learner or "learner", fix=_FIX
        )
