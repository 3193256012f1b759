"""The tool sessions of all workers, as the coordinator's services know them.

The coordinator alone renews leases, by owner. It must know every worker's sessions: to renew them
at the endpoints that hold them, to report lost ones, and to close those without an attempt.

Invariants
- A session of a living worker is known here from its report on, until the worker reports its end.
- When a worker dies, sessions of attempts that go on stay known; all others are closed.
- A session that was kept and that no worker reports again is closed (`release`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from engine.core.tools.services import ToolServices
from engine.core.tools.sessions.session import ServiceSession
from engine.types import SessionRef
from toolwright.crew.v1 import crew_pb2 as pb

_NO_WORKER = ""


class SessionMirror:
    """The sessions by (service, id)."""

    def __init__(self, tools: ToolServices, lost: Callable[[str, str, str], None]) -> None:
        """lost: called with worker, service and id of a session that its service has lost."""
        self._tools = tools
        self._lost = lost
        self._holders: dict[tuple[str, str], str] = {}
        """Name of the worker that has the session."""

    def take(self, worker: str, change: pb.SessionChange) -> None:
        """Takes a worker's report."""
        key = (change.service, change.session_id)
        if change.gone:
            if self._holders.get(key) == worker:
                self._forget(key)
            return
        self._enter(worker, *key, change.endpoint)

    def keep(self, refs: Iterable[SessionRef]) -> None:
        """Keeps sessions of attempts that go on, until a worker reports them."""
        for ref in refs:
            service = self._tools.services.get(ref.service)
            if service is not None and self._holders.get((ref.service, ref.session_id)) is None:
                address = service.link.recorded_address(ref.endpoint)
                self._enter(_NO_WORKER, ref.service, ref.session_id, address)
        self._tools.leases.adopt(ref.session_id for ref in refs)

    def release(self, refs: Iterable[SessionRef]) -> None:
        """Closes those sessions of `keep` that no worker has taken."""
        for ref in refs:
            if self._holders.get((ref.service, ref.session_id)) == _NO_WORKER:
                self._close(ref.service, ref.session_id)

    def bury(self, worker: str, kept: Collection[tuple[str, str]]) -> None:
        """The worker is dead. kept: sessions of attempts that go on, (service, id)."""
        for key in [key for key, holder in self._holders.items() if holder == worker]:
            if key in kept:
                self._holders[key] = _NO_WORKER
            else:
                self._close(*key)

    def _enter(self, worker: str, name: str, session_id: str, endpoint: str) -> None:
        service = self._tools.services[name]
        self._holders[name, session_id] = worker
        service.known.add(session_id)
        if not endpoint:
            service.sessions.pop(session_id, None)
            return
        ref = SessionRef(service=name, session_id=session_id, endpoint=endpoint, tools=())
        session = service.sessions[session_id] = ServiceSession(service.link, ref)
        session.on_lost = partial(self._lost, worker, name, session_id)

    def _forget(self, key: tuple[str, str]) -> None:
        name, session_id = key
        del self._holders[key]
        service = self._tools.services[name]
        service.sessions.pop(session_id, None)
        service.known.discard(session_id)

    def _close(self, name: str, session_id: str) -> None:
        service = self._tools.services[name]
        held = service.sessions.get(session_id)
        del self._holders[name, session_id]
        service.close_if_open(session_id, held.address if held is not None else "")
