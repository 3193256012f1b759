"""The journal of one session of Python code: its replay brings a second session to the same state.

Invariants
- A journal that cannot be replayed says why, and holds nothing.
- A replay is good only if every call ends as it did and prints what it printed. What a call did
  without a trace in its output (drew at random, read a clock) is not seen.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from toolsvc.errors import Reason, Refused, backend_down
from toolsvc.sandbox.session import Ending, Outcome, SandboxSession

JOURNAL_CHARACTERS = 256 << 10
"""Maximum characters of code that one session keeps for a fork: a hundred calls of a page each."""
_CALL_CHARACTERS = 64
"""Least characters that a call counts for, so that the number of calls is bounded too."""
_REPLAY_SECONDS = 3600.0
"""Limit of one call, in seconds: each has ended within its own limit before. The request's queue
limit bounds all of them together."""
_DETERMINED = (Ending.OK, Ending.EXCEPTION)
"""After any other ending the state depends on when the call was stopped."""


class _Ran(NamedTuple):
    code: str
    trace: bytes


class Journal:
    """All calls of one session."""

    def __init__(self, called: str = "Python session", tool: str = "python") -> None:
        """called: name of what the process keeps, for messages."""
        self._called, self._tool = called, tool
        self._ran: list[_Ran] = []
        self._room = JOURNAL_CHARACTERS
        self._number = 0
        self._why_not = ""

    def add(self, code: str, outcome: Outcome) -> None:
        """A call that has run."""
        self._number += 1
        if self._why_not:
            return
        self._room -= len(code) + _CALL_CHARACTERS
        if outcome.ending not in _DETERMINED:
            self._give_up(f"call {self._number} was stopped ({outcome.ending.value})")
        elif self._room < 0:
            self._give_up(f"its code has more than {JOURNAL_CHARACTERS} characters")
        else:
            self._ran.append(_Ran(code, _trace(outcome)))

    @property
    def empty(self) -> bool:
        """Nothing ran."""
        return self._number == 0

    def copy(self) -> Journal:
        """Raises Refused if the calls cannot be replayed."""
        if self._why_not:
            raise self._cannot(self._why_not)
        copy = Journal(self._called, self._tool)
        copy._ran, copy._room, copy._number = list(self._ran), self._room, self._number
        return copy

    async def replay(self, process: SandboxSession, *, keep: int) -> None:
        """Runs all calls in a fresh process. `keep`: bytes of their output, as when they first ran.
        Raises Refused if one of them comes to something else."""
        for number, ran in enumerate(self._ran, start=1):
            outcome = await process.run(ran.code, limit=_REPLAY_SECONDS, keep=keep)
            if outcome.ending is Ending.TAKEN_DOWN:
                raise backend_down(f"the {self._called} was lost: {outcome.reason}")
            if _trace(outcome) != ran.trace:
                raise self._cannot(f"call {number} came to something else when it ran again")

    def _give_up(self, why: str) -> None:
        self._why_not = why
        self._ran.clear()

    def _cannot(self, why: str) -> Refused:
        return Refused(
            Reason.NOT_SERVED,
            f"the {self._called} cannot be forked: {why}",
            subject=self._tool,
            fix="open a new session and make its calls there",
        )


def _trace(outcome: Outcome) -> bytes:
    """Data by which two runs of one call are compared."""
    told = f"{outcome.ending.value}\0{outcome.truncated}\0{outcome.lost}\0{outcome.output}"
    return hashlib.blake2b(told.encode("utf-8", "replace"), digest_size=16).digest()
