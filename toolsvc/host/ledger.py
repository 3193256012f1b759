"""Which calls of a session were made, and what came of them; a pure state machine.

Rule 2 of ARCHITECTURE.md: same call id, same answer; the effect happens at most once.

Invariants
- A call id is run at most once. It becomes free again only by `release`, which is refused to a call
  that has run.
- An id that was seen with one digest is refused with any other, for the session's whole life.
- Results of acknowledged turns may be forgotten, never that their calls ran: such an id, or any
  id of an acknowledged turn that is not held, is refused and nothing runs.

It does not know what a call is, how it runs, or how its result looks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Handle = TypeVar("Handle")


class CallIdReused(Exception):
    """The id came before with another request."""


class ResultForgotten(Exception):
    """The id's turn was acknowledged and its result is not held."""


@dataclass(slots=True)
class _Entry(Generic[Handle]):
    digest: bytes
    turn: int
    handle: Handle
    ran: bool = False
    settled: bool = False


class Ledger(Generic[Handle]):
    """`Handle` is whatever leads to the call's answer, in flight or recorded."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry[Handle]] = {}
        self._forgotten: dict[str, bytes] = {}
        self._began: dict[str, None] = {}
        self._acknowledged = 0

    def __len__(self) -> int:
        """Calls whose answer is held or on its way."""
        return len(self._entries)

    def find(self, call_id: str, digest: bytes, turn: int) -> Handle | None:
        """The handle of a call made before; None means that the call is new and may run.

        CallIdReused, ResultForgotten: nothing may run.
        """
        entry = self._entries.get(call_id)
        if entry is not None:
            if entry.digest != digest:
                raise CallIdReused(call_id)
            return entry.handle
        known = self._forgotten.get(call_id)
        if known is not None and known != digest:
            raise CallIdReused(call_id)
        if known is not None or turn < self._acknowledged:
            raise ResultForgotten(call_id)
        return None

    def open(self, call_id: str, digest: bytes, turn: int, handle: Handle) -> None:
        """Enters a call that `find` said is new. Acknowledges all turns below its own."""
        if call_id in self._entries or call_id in self._forgotten:
            raise ValueError(f"{call_id} was entered before")
        self._entries[call_id] = _Entry(digest, turn, handle)
        if turn > self._acknowledged:
            self._acknowledged = turn
            for known in [i for i, e in self._entries.items() if e.settled and e.turn < turn]:
                self._forget(known)

    def settle(self, call_id: str) -> None:
        """The call has ended and its result stands. One whose turn was acknowledged while it ran
        is held until the next turn begins, so that its owner can still fetch it."""
        entry = self._entries.get(call_id)
        if entry is not None:
            entry.settled = True

    def begin(self, call_id: str) -> None:
        """The call, which was entered, begins to run."""
        self._began[call_id] = None

    def ran(self, call_id: str) -> None:
        """The call has run: whatever comes after, its id is never free again."""
        entry = self._entries.get(call_id)
        if entry is not None:
            entry.ran = True

    def has_run(self, call_id: str) -> bool:
        """A call that is held has run to its end."""
        entry = self._entries.get(call_id)
        return entry is not None and entry.ran

    @property
    def began(self) -> tuple[str, ...]:
        """Ids of all calls that have begun to run, in that order, for the session's whole life."""
        return tuple(self._began)

    def inherit(self, call_ids: Iterable[str]) -> None:
        """Ids of calls that ran before this ledger began, in that order: they have run here too,
        and no request under one of them runs anything."""
        for call_id in call_ids:
            self._began[call_id] = None
            self._forgotten[call_id] = b""  # the digest of no request

    def release(self, call_id: str) -> None:
        """Nothing ran: the id is free, its retry may run. Raises ValueError for a call that has
        run."""
        if self.has_run(call_id):
            raise ValueError(f"{call_id} has run")
        self._entries.pop(call_id, None)
        self._began.pop(call_id, None)

    def in_flight(self) -> list[Handle]:
        return [entry.handle for entry in self._entries.values() if not entry.settled]

    def get(self, call_id: str) -> Handle | None:
        """The handle of a call that can still be stopped: in flight, and not at its run's end."""
        entry = self._entries.get(call_id)
        return None if entry is None or entry.settled or entry.ran else entry.handle

    def _forget(self, call_id: str) -> None:
        self._forgotten[call_id] = self._entries.pop(call_id).digest
