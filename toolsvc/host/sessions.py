"""The sessions of one host: how they open, how they are found, and how they end.

Invariants
- A session is opened once: a repeated request joins the opening, or gets its outcome.
- An opening that fails leaves nothing: its states are closed before the id is free again.
- A session that has ended is remembered: a request with its id is refused and opens no second
  session.
- A session belongs to its opener (`toolwright.rpc.auth.caller`): no other caller finds it.
- Whatever ends a session, its calls end first, then every tool's state is closed.

Other modules decide how long a session lives, and what runs in it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import structlog

from toolsvc.errors import RETRY_SECONDS, Reason, Refused
from toolsvc.host.blobs import Blobs
from toolsvc.host.forking import standing_still
from toolsvc.host.open_session import OpenSession
from toolsvc.host.refusals import (
    draining,
    opened_otherwise,
    session_closed,
    session_lost,
    session_not_found,
    too_many_sessions,
    unknown_tool,
)
from toolsvc.host.task_blobs import TaskBlobs
from toolsvc.plugin.tool import Tool
from toolsvc.plugin.waiting import RunClock, waited_too_long
from toolsvc.types import Descriptor, Opened, OpenRequest
from toolwright.rpc.auth import caller

LONGEST_LEASE = 24 * 3600.0
LONGEST_OPENING = 3600.0
CALLS_SECONDS = 20.0
"""For the calls of a session that ends to end too; a plugin may not heed its cancelling."""
_TOMBSTONES = 8192

log = structlog.get_logger(__name__)


class Sessions:
    """Iterates over those that are here, also those that are only being opened."""

    def __init__(
        self,
        tools: Mapping[str, tuple[Tool, Descriptor]],
        *,
        most: int,
        blobs: Blobs,
        task_blobs: TaskBlobs,
    ) -> None:
        """`tools`: all that a session may have, by name. `most`: sessions at once. The blobs of
        observations and of tasks are let go with their session."""
        self._tools = tools
        self._most = most
        self._blobs = blobs
        self._task_blobs = task_blobs
        self._here: dict[str, OpenSession] = {}
        self._opening: dict[str, asyncio.Task[Opened]] = {}
        self._closed: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """Whose it was, and why it ended."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self.draining = False
        """No new one is opened."""

    def __iter__(self) -> Iterator[OpenSession]:
        return iter(tuple(self._here.values()))

    def __len__(self) -> int:
        return len(self._here)

    @property
    def ids(self) -> list[str]:
        return list(self._here)

    def known(self, session_id: str) -> bool:
        """It is here, or was and is remembered."""
        return session_id in self._here or session_id in self._closed

    def mine(self, session_id: str) -> OpenSession | None:
        """The session, if it is here and the caller has opened it; it may still be opening."""
        session = self._here.get(session_id)
        return session if session is not None and session.caller == caller() else None

    def find(self, session_id: str) -> OpenSession:
        """An open session. Raises Refused if it is not open, or if the caller has not opened it."""
        session = self._here.get(session_id)
        if session is None or session.opened is None or session.caller != caller():
            raise self._gone(session_id, caller())
        return session

    def usable(self, session_id: str) -> OpenSession:
        """One that is open and has lost no state. Refused otherwise."""
        session = self.find(session_id)
        lost = session.lost
        if lost is not None:
            raise session_lost(session_id, lost)
        return session

    async def open(self, request: OpenRequest, parent: OpenSession | None = None) -> Opened:
        """The session; the same one for a repetition of the same request. Refused otherwise.
        `parent`: the one that it is forked from."""
        name = request.session_id
        session = self._here.get(name)
        if session is not None:
            if session.digest != request.digest or session.caller != caller():
                raise opened_otherwise(name)
            if session.opened is not None:
                session.lease_until = max(session.lease_until, lease_end(request.lease))
                return session.opened
            return await self._when_open(name, self._opening[name])
        if name in self._closed:
            whose, why = self._closed[name]
            raise session_closed(name, why) if whose == caller() else opened_otherwise(name)
        if self.draining:
            raise draining()
        if len(self._here) >= self._most:
            spare = self._spare()
            if spare is None:
                raise too_many_sessions(name, self._most)
            await self.close(spare, "nothing was asked of it for long, and its place was needed")
            return await self.open(request, parent)
        wanted = dict.fromkeys(request.tools or self._tools)  # a name said twice is one tool
        for tool in wanted:
            if tool not in self._tools:
                raise unknown_tool(tool, self._tools)
        blobs = self._task_blobs.claim(name, request.blobs)
        session = OpenSession(request, wanted, blobs, lease_end(request.lease))
        self._here[name] = session
        self._opening[name] = opening = self._own(
            self._open(session, wanted, min(request.queue_limit, LONGEST_OPENING), parent)
        )
        opening.add_done_callback(partial(self._opened, name))
        return await self._when_open(name, opening)

    async def close(self, session_id: str, why: str) -> bool:
        """Ends a session and every call in it, also one that is only being opened; once it has
        begun it goes on where the caller is cancelled. False if it was not open."""
        session = self._here.get(session_id)
        if session is None:
            return False
        self._remember(session, why)
        opening = self._opening.get(session_id)
        if opening is not None:
            opening.cancel()
            await asyncio.wait((opening,))
        if self._here.pop(session_id, None) is None:
            return True
        calls = running_tasks([session])
        for task in calls:
            task.cancel()
        await asyncio.shield(self._own(self._end(session, calls)))
        return True

    def close_later(self, session_id: str, why: str) -> None:
        """Not awaited: a tool that is slow to close must not keep others open."""
        self._own(self.close(session_id, why))

    async def close_all(self, why: str) -> None:
        """Returns when nothing of any session goes on."""
        await asyncio.gather(*(self.close(name, why) for name in self.ids), return_exceptions=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _open(
        self,
        session: OpenSession,
        wanted: Iterable[str],
        limit: float,
        parent: OpenSession | None,
    ) -> Opened:
        """In a task of its own. `limit`: seconds, those apart that a tool waits for a backend."""
        name = session.info.session_id
        tools = [self._tools[tool] for tool in wanted]
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a session is opened outside of a task")
        clock = RunClock(task, limit)
        try:
            if parent is None:
                return await session.open_tools(tools)
            with standing_still(parent):
                session.ledger.inherit(parent.ledger.began)
                return await session.open_tools(tools, parent)
        except BaseException as error:
            clock.stop()
            if clock.rang:
                task.uncancel()
            # As if it had never been asked for. Its states are closed first: until they are, a
            # retry joins this opening and begins no other.
            try:
                await asyncio.shield(self._own(session.close_tools()))
            finally:
                self._here.pop(name, None)
                self._task_blobs.forget(name)
            if not clock.rang:
                raise
            if clock.waited_for:
                raise waited_too_long(f"session {name}", clock.waited_for) from error
            raise Refused(
                Reason.QUEUE_LIMIT,
                f"session {name} was not open after {limit:g} s",
                subject=name,
                retry_after=RETRY_SECONDS,
                fix="raise the queue limit",
            ) from error
        finally:
            clock.stop()

    async def _when_open(self, name: str, opening: asyncio.Task[Opened]) -> Opened:
        """What the opening ends with; it goes on where the caller is cancelled."""
        await asyncio.wait((opening,))
        if opening.cancelled():
            raise self._gone(name, caller())
        return opening.result()

    def _opened(self, name: str, opening: asyncio.Task[Opened]) -> None:
        if self._opening.get(name) is opening:  # a failed one may have a successor by now
            del self._opening[name]

    async def _end(self, session: OpenSession, calls: list[asyncio.Task[None]]) -> None:
        name = session.info.session_id
        if calls:
            _, stuck = await asyncio.wait(calls, timeout=CALLS_SECONDS)
            if stuck:
                log.error("calls do not end though they were cancelled", session=name)
        for call in session.ledger.in_flight():
            call.end(self._gone(name, session.caller))
        self._blobs.forget(name)
        self._task_blobs.forget(name)
        await session.close_tools()

    def _spare(self) -> str | None:
        """The session that may end for another, if one may: the one left alone for longest."""
        now = time.monotonic()
        spare = [one for one in self._here.values() if one.gives_way(now)]
        if not spare:
            return None
        return min(spare, key=lambda one: one.lease_until).info.session_id

    def _remember(self, session: OpenSession, why: str) -> None:
        self._closed[session.info.session_id] = session.caller, why
        while len(self._closed) > _TOMBSTONES:
            self._closed.popitem(last=False)

    def _gone(self, session_id: str, asker: str) -> Refused:
        whose, why = self._closed.get(session_id, (None, ""))
        if whose != asker:
            return session_not_found(session_id)
        return session_closed(session_id, why)

    def _own(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Retrieved, so that asyncio does not log an error without a waiter.


def lease_end(lease: float) -> float:
    """On the monotonic clock."""
    return time.monotonic() + min(lease, LONGEST_LEASE)


def running_tasks(sessions: Iterable[OpenSession]) -> list[asyncio.Task[None]]:
    """Number of calls in flight in all sessions."""
    running = (call for session in sessions for call in session.ledger.in_flight())
    return [call.task for call in running if call.task is not None]
