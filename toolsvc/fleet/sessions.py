"""Which host every session is on, and how sessions ended; pure, and never waits.

Invariants
- A session is on one host from the moment at which it is placed; it never moves.
- An ended session stays ended: its id is refused until `_REMEMBERED` others have ended after it.
- The declared needs of a host's sessions never exceed its resources.
- A session is its opener's alone (`toolwright.rpc.auth.caller`): no other caller finds it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from toolsvc.errors import RETRY_SECONDS, Reason, Refused, backend_down
from toolsvc.fleet.resources import Resources, together
from toolsvc.host.refusals import (
    opened_otherwise,
    session_closed,
    session_lost,
    session_not_found,
    too_many_sessions,
)
from toolsvc.types import OpenRequest
from toolwright.rpc.auth import caller

_REMEMBERED = 65_536

H = TypeVar("H", bound=Hashable)


@dataclass(slots=True, kw_only=True, eq=False)
class Placed(Generic[H]):
    """A session that has not ended, as far as the front knows."""

    session_id: str
    owner: str
    digest: bytes
    """Digest of the request that it was placed for."""
    needs: Resources
    host: H | None
    """None while the session's own actor is starting."""
    opening: int = 0
    """Number of requests to open it that are on their way to the host."""
    caller: str = ""
    """Caller that owns it."""
    asked: int = 0
    """Number of requests to open it that were ever sent."""
    opened: bool = False
    """Whether the host has confirmed it."""


class SessionTable(Generic[H]):
    """All placed sessions. The functions in `leaving` are called at once with each session that
    leaves."""

    def __init__(self, most: int, room: Resources) -> None:
        """`most`: maximum sessions at once. `room`: resources of each shared host."""
        self.leaving: list[Callable[[Placed[H]], None]] = []
        self._most = most
        self._room = room
        self._living: dict[str, Placed[H]] = {}
        self._shared: dict[H, dict[str, Placed[H]]] = {}
        self._ended: OrderedDict[str, tuple[Reason, str, str]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._living)

    def get(self, session_id: str) -> Placed[H] | None:
        """The session; None for an unknown id. Raises Refused if it has ended."""
        gone = self._gone(session_id)
        if gone.reason is not Reason.SESSION_NOT_FOUND:
            raise gone
        placed = self._living.get(session_id)
        return placed if placed is not None and placed.caller == caller() else None

    def find(self, session_id: str) -> Placed[H]:
        """The session. Raises Refused if it has ended or is unknown."""
        placed = self.get(session_id)
        if placed is None:
            raise self._gone(session_id)
        return placed

    def of(self, owner: str) -> list[Placed[H]]:
        """The caller's sessions of this owner."""
        mine = caller()
        living = self._living.values()
        return [placed for placed in living if placed.owner == owner and placed.caller == mine]

    def on(self, host: H) -> list[Placed[H]]:
        shared = self._shared.get(host)
        if shared is not None:
            return list(shared.values())
        return [placed for placed in self._living.values() if placed.host is host]

    def join(self, host: H) -> None:
        """Adds a shared host; sessions are placed there from now on."""
        self._shared[host] = {}

    def place(self, request: OpenRequest, needs: Resources) -> Placed[H]:
        """Places a session on the shared host with room that has the fewest sessions. Raises
        Refused if no host has room, or the service is full."""
        self._check_new(request)
        if not self._shared:
            raise no_host()
        fitting = [host for host in self._shared if self._has_room(host, needs)]
        if not fitting:
            raise Refused(
                Reason.TOO_MANY_SESSIONS,
                f"no host has room for {needs} more",
                subject=request.session_id,
                retry_after=RETRY_SECONDS,
                fix="close sessions, or start the service with more --hosts",
            )
        host = min(fitting, key=lambda one: len(self._shared[one]))
        placed = self._new(request, needs, host)
        self._shared[host][request.session_id] = placed
        return placed

    def shares(self, host: H) -> bool:
        """Whether it is a shared host."""
        return host in self._shared

    def place_beside(self, request: OpenRequest, parent: Placed[H]) -> Placed[H]:
        """Places a fork on the host of `parent`. Raises Refused if that host is the parent's own,
        if it has no room, or if the service is full."""
        self._check_new(request)
        host = parent.host
        if host is None or not self.shares(host):
            raise Refused(
                Reason.NOT_SERVED,
                f"session {parent.session_id} has an actor of its own, and cannot be forked",
                subject=parent.session_id,
                fix="open a new session and make its calls there",
            )
        if not self._has_room(host, parent.needs):
            raise Refused(
                Reason.TOO_MANY_SESSIONS,
                f"the host of session {parent.session_id} has no room for {parent.needs} more",
                subject=request.session_id,
                retry_after=RETRY_SECONDS,
                fix="close sessions",
            )
        placed = self._new(request, parent.needs, host)
        self._shared[host][request.session_id] = placed
        return placed

    def place_alone(self, request: OpenRequest, needs: Resources) -> Placed[H]:
        """Places a session on a host of its own, which starts later. Raises Refused if the service
        is full."""
        self._check_new(request)
        return self._new(request, needs, None)

    def end(self, placed: Placed[H], why: str, reason: Reason = Reason.SESSION_CLOSED) -> None:
        """Ends the session for good. Idempotent."""
        if self._living.get(placed.session_id) is not placed:
            return
        self._ended[placed.session_id] = (reason, why, placed.caller)
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        self.drop(placed)

    def closed(self, session_id: str) -> None:
        """Records that the client has closed the session at its host."""
        placed = self._living.get(session_id)
        if placed is not None:
            self.end(placed, "it was closed")

    def drop(self, placed: Placed[H]) -> None:
        """Removes the session as if it had never been requested, unless it has ended already."""
        if self._living.get(placed.session_id) is not placed:
            return
        del self._living[placed.session_id]
        for sessions in self._shared.values():
            sessions.pop(placed.session_id, None)
        for tell in self.leaving:
            tell(placed)

    def lose(self, host: H, why: str) -> int:
        """Records that the host has died; returns the number of lost sessions. A session whose
        opening was never answered may be opened elsewhere."""
        here = self.on(host)
        self._shared.pop(host, None)
        for placed in here:
            if placed.opened:
                self.end(placed, why, Reason.SESSION_LOST)
            else:
                self.drop(placed)
        return sum(placed.opened for placed in here)

    def _has_room(self, host: H, needs: Resources) -> bool:
        if needs == Resources():
            return True
        taken = together(placed.needs for placed in self._shared[host].values())
        return (taken + needs).fits(self._room)

    def _check_new(self, request: OpenRequest) -> None:
        if request.session_id in self._living or request.session_id in self._ended:
            raise opened_otherwise(request.session_id)  # By another caller.
        if len(self) >= self._most:
            raise too_many_sessions(request.session_id, self._most)

    def _new(self, request: OpenRequest, needs: Resources, host: H | None) -> Placed[H]:
        placed = self._living[request.session_id] = Placed(
            session_id=request.session_id,
            owner=request.owner,
            digest=request.digest,
            needs=needs,
            host=host,
            caller=caller(),
        )
        return placed

    def _gone(self, session_id: str) -> Refused:
        reason, why, whose = self._ended.get(session_id, (Reason.SESSION_NOT_FOUND, "", None))
        if whose != caller():
            return session_not_found(session_id)
        lost = reason is Reason.SESSION_LOST
        return session_lost(session_id, why) if lost else session_closed(session_id, why)


def no_host() -> Refused:
    return backend_down("no host lives; new ones are being started")
