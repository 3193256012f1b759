"""One jail and the sessions in it, driven by the jail's control socket.

Invariants
- A session is handed out only after its own process said that it is confined.
- When the jail's socket closes, every session of it is gone; what is left of the jail is ended
  by `close`, since sessions survive a zygote that died alone.
- A jail that failed to make a session several times in a row is `barren`. The cause may lie in this
  jail, so another jail replaces it. Its live sessions go on.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any

from toolsvc.sandbox.config import MIB
from toolsvc.sandbox.errors import SandboxDown, SandboxError, SandboxUnavailable
from toolsvc.sandbox.jail import Jail, start_jail
from toolsvc.sandbox.jailed import wire
from toolsvc.sandbox.plan import JailPlan
from toolsvc.sandbox.session import Ending, SandboxSession

BARREN_AFTER = 3
"""Sessions that could not be made, in a row."""
START_SECONDS = 60.0
"""A jail starts in 0.1 s on a quiet machine, in 1 s with numpy and sympy to import; firejail starts
one at a time under a lock."""


class Shard:
    """Not thread-safe: all calls from the loop that started it."""

    def __init__(
        self,
        jail: Jail,
        *,
        exclusive: bool,
        memory_bytes: int,
        disk_bytes: int,
        on_ready: Callable[[SandboxSession], None],
        on_failed: Callable[[str], None],
        on_down: Callable[[Shard], None],
    ) -> None:
        """`exclusive`: the jail holds one session and goes with it."""
        self._jail = jail
        self._exclusive = exclusive
        self._memory_bytes = memory_bytes
        self._disk_bytes = disk_bytes
        self._tell_ready = on_ready
        self._tell_failed = on_failed
        self._on_down = on_down
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._requested: set[int] = set()
        self._sessions: dict[int, SandboxSession] = {}
        self._numbers: dict[SandboxSession, int] = {}
        self._next = 0
        self._closing = False
        self._end: asyncio.Task[None] | None = None
        self._failed = 0
        self._retired = False
        self.down = False
        self.disk_bounded = False
        """The kernel bounds all files of the jail together; else only the watch bounds them."""
        self._loop.add_reader(jail.control.fileno(), self._on_readable)

    @classmethod
    async def start(cls, plan: JailPlan, settings: Mapping[str, Any], **callbacks: Any) -> Shard:
        """Raises SandboxDown if the jail does not start; the message has its complaint. Raises
        SandboxUnavailable if the jail came up and the operator's settings cannot work in it."""
        jail = start_jail(plan, settings)
        limits = {name: settings[name] for name in ("memory_bytes", "disk_bytes")}
        shard = cls(jail, **limits, **callbacks)
        try:
            async with asyncio.timeout(START_SECONDS):
                await shard._started
        except TimeoutError:
            complaint = jail.complaint()
            await shard.close()
            raise SandboxDown(
                f"the jail was not ready after {START_SECONDS:g} s: {complaint}"
            ) from None
        except BaseException:
            await shard.close()
            raise
        return shard

    @property
    def sessions(self) -> list[SandboxSession]:
        return list(self._sessions.values())

    @property
    def load(self) -> int:
        """Sessions that live here or are on their way."""
        return len(self._sessions) + len(self._requested)

    @property
    def barren(self) -> bool:
        return self._failed >= BARREN_AFTER

    @property
    def jail_pid(self) -> int:
        return self._jail.pid

    def request(self, count: int = 1) -> None:
        """Asks for new sessions; each ends in `on_ready` or `on_failed`."""
        numbers = list(range(self._next, self._next + count))
        self._next += count
        self._requested.update(numbers)
        try:
            self._jail.control.send(json.dumps({"new": numbers}).encode())
        except OSError:
            self._fall()

    def retire(self) -> None:
        """Ends the jail as soon as no session is left in it; ask it for no more."""
        self._retired = True
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._exclusive or (self._retired and not self.load):
            self._fall()

    async def close(self) -> None:
        """Ends the jail and everything in it. Idempotent: a jail may fall while it is closed."""
        self._closing = True
        if not self.down:
            self.down = True
            self._loop.remove_reader(self._jail.control.fileno())
            self._drop_sessions("the service closed its jail")
        if self._end is None:
            self._end = asyncio.create_task(asyncio.to_thread(self._jail.end))
        await asyncio.shield(self._end)

    def _on_readable(self) -> None:
        while not self.down:
            try:
                packet, descriptors, _, _ = socket.recv_fds(
                    self._jail.control, wire.PACKET_BYTES, 4
                )
            except BlockingIOError:
                return
            except OSError:
                packet, descriptors = b"", []
            if not packet:
                self._fall()
                return
            self._obey(json.loads(packet), descriptors)

    def _obey(self, message: Mapping[str, Any], descriptors: list[int]) -> None:
        event = message["event"]
        if event == "session":
            self._adopt(message["id"], descriptors)
        elif event == "ended":
            for number, status in message["ended"]:
                session = self._sessions.get(number)
                if session is not None:
                    session.reaped(status)
        elif event == "failed":
            self._requested.discard(message["id"])
            self._on_failed(message["error"])
            self._end_if_idle()
        elif event == "over_memory":
            self._condemn(
                message["id"],
                Ending.OUT_OF_MEMORY,
                f"its processes held {message['held'] // MIB} MiB, "
                f"above the limit of {self._memory_bytes // MIB} MiB",
            )
        elif event == "over_disk":
            reason = f"its files took more than the limit of {self._disk_bytes // MIB} MiB"
            if message["together"]:
                reason = (
                    "it had the most files when those of all sessions took "
                    f"{message['together'] // MIB} MiB of the machine's memory"
                )
            self._condemn(message["id"], Ending.LIMIT, reason)
        elif event == "over_limit":
            self._condemn(message["id"], Ending.LIMIT, message["reason"])
        elif event == "unusable":
            self._fall(SandboxUnavailable(message["reason"]))
        elif event == "ready":
            self.disk_bounded = message["disk_bounded"]
            if not self._started.done():
                self._started.set_result(None)

    def _condemn(self, number: int, ending: Ending, reason: str) -> None:
        session = self._sessions.get(number)
        if session is not None:
            session.condemn(ending, reason)

    def _adopt(self, number: int, descriptors: list[int]) -> None:
        self._requested.discard(number)
        channel, pidfd, output = descriptors
        session = SandboxSession(
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=channel),
            pidfd,
            output,
            on_ready=self._on_ready,
            on_gone=self._session_gone,
            kill_jail=self._fall if self._exclusive else None,
        )
        self._sessions[number] = session
        self._numbers[session] = number

    def _on_ready(self, session: SandboxSession) -> None:
        self._failed = 0
        self._tell_ready(session)

    def _on_failed(self, reason: str) -> None:
        self._failed += 1
        self._tell_failed(reason)

    def _session_gone(self, session: SandboxSession) -> None:
        del self._sessions[self._numbers.pop(session)]
        if not session.ready:
            reason = session.gone or ""
            session.close()
            self._on_failed(reason)
        self._end_if_idle()

    def _fall(self, reason: SandboxError | None = None) -> None:
        """The jail is gone, or has to go: `on_down` must `close` what is left of it."""
        if self.down:
            return
        self.down = True
        self._loop.remove_reader(self._jail.control.fileno())
        if not self._started.done():
            # `start` raises this, and closes it.
            ended = SandboxDown(f"the jail ended: {self._jail.complaint()}")
            self._started.set_exception(reason or ended)
            return
        self._drop_sessions("its jail went down")
        self._on_down(self)

    def _drop_sessions(self, reason: str) -> None:
        for session in self.sessions:
            # A session that is alone in its jail can end all of it.
            felled = self._exclusive and session.used and not self._closing
            session.condemn(Ending.CRASHED if felled else Ending.TAKEN_DOWN, reason)
            if not session.ready:
                session.close()
        requested = len(self._requested)
        self._requested.clear()
        for _ in range(requested):
            self._on_failed(reason)
