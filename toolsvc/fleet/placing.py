"""From a request for a session to its host: a shared host, or one of its own."""

from __future__ import annotations

from collections.abc import Mapping

from toolsvc.errors import Refused
from toolsvc.fleet.link import HostLink
from toolsvc.fleet.own_hosts import OwnHosts
from toolsvc.fleet.resources import NOTHING, Resources, needs_own_host, together
from toolsvc.fleet.sessions import Placed, SessionTable
from toolsvc.host.refusals import draining, opened_otherwise, unknown_tool
from toolsvc.host.task_blobs import TaskBlobs
from toolsvc.types import ForkRequest, OpenRequest


class Placer:
    def __init__(
        self,
        needs: Mapping[str, Resources] | None,
        room: Resources,
        sessions: SessionTable[HostLink],
        blobs: TaskBlobs,
        own: OwnHosts,
    ) -> None:
        """`needs`: resources of a session, by tool; None = a session needs only a place. `room`:
        resources of a shared host."""
        self.draining = False
        """If true, no new session is placed."""
        self._needs = needs
        self._room = room
        self._sessions = sessions
        self._blobs = blobs
        self._own = own
        sessions.leaving.append(lambda placed: blobs.forget(placed.session_id))

    def place(self, wish: OpenRequest) -> Placed[HostLink]:
        """The place of a session: its present place if the same request placed it before, else a
        new place, with its blobs claimed. Raises Refused."""
        placed = self._sessions.get(wish.session_id)
        if placed is None:
            return self._place_new(wish)
        if placed.digest != wish.digest:
            raise opened_otherwise(wish.session_id)
        return placed

    def place_fork(self, wish: ForkRequest) -> Placed[HostLink]:
        """As `place`, but a new session goes to its parent's host."""
        child = wish.child
        placed = self._sessions.get(child.session_id)
        if placed is not None:
            if placed.digest != child.digest:
                raise opened_otherwise(child.session_id)
            return placed
        parent = self._sessions.find(wish.parent)
        if self.draining:
            raise draining()
        return self._claimed(self._sessions.place_beside(child, parent), child)

    async def host_of(self, placed: Placed[HostLink]) -> HostLink:
        """The session's host, once it is up. Raises Refused if the host cannot be started."""
        return placed.host or await self._own.host_of(placed)

    def _place_new(self, wish: OpenRequest) -> Placed[HostLink]:
        if self.draining:
            raise draining()
        if self._needs is None:  # The host knows which tools exist.
            return self._claimed(self._sessions.place(wish, NOTHING), wish)
        tools = tuple(dict.fromkeys(wish.tools or self._needs))
        for tool in tools:
            if tool not in self._needs:
                raise unknown_tool(tool, self._needs)
        needs = together(self._needs[tool] for tool in tools)
        alone = needs_own_host(needs, self._room)
        place = self._sessions.place_alone if alone else self._sessions.place
        placed = self._claimed(place(wish, needs), wish)
        if alone:
            self._own.start(placed, tools, wish.queue_limit)
        return placed

    def _claimed(self, placed: Placed[HostLink], wish: OpenRequest) -> Placed[HostLink]:
        """The session with its blobs held. Drops it and raises Refused if a blob is missing."""
        try:
            self._blobs.claim(wish.session_id, wish.blobs)
        except Refused:
            self._sessions.drop(placed)
            raise
        return placed
