"""The host's side of one session: send a call, wait for its end, bound its time.

Invariants
- At most one call is in flight; a second one is the caller's mistake.
- Every call ends: by an answer, by SIGINT at its limit, or by SIGKILL a second later. After SIGKILL
  the session is gone, with a reason.
- If a process ends after it got code, the code counts as the cause, whichever signal it was: code
  can lower its own limits to be killed. Only the end of its jail takes a session down.
- Signals go by pidfd: no process number is ever reused under us, and it works across pid
  namespaces.
- What the session sends is not trusted: whatever does not parse ends the session.

It does not know what a tool, a lease or an RPC is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from toolsvc.sandbox.jailed import wire

GRACE_SECONDS = 1.0
"""Between the interrupt at the run limit and the kill."""
_INTERRUPT_SECONDS = 0.1
_POST_MORTEM_SECONDS = 2.0
"""Longest wait for the zygote's report on how the process ended, in seconds."""
_GROUP = 1 << 2  # PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9
_MESSAGE_BYTES = 4096


class Ending(Enum):
    """How a call ended."""

    OK = "ok"
    EXCEPTION = "exception"
    """The code raised; the traceback is in the output."""
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    OUT_OF_MEMORY = "out_of_memory"
    LIMIT = "limit"
    """A limit of its files, or of locks on them."""
    CRASHED = "crashed"
    """The process ended: os._exit, a segmentation fault, a signal."""
    TAKEN_DOWN = "taken_down"
    """Its jail ended, or it ended before it had any code: the code is not the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`lost`: the session's state is gone with it, `reason` says why."""

    ending: Ending
    output: str
    truncated: bool
    run_seconds: float
    lost: bool = False
    reason: str = ""


class SandboxSession:
    """One confined interpreter. Not thread-safe: all calls from the loop that made it."""

    def __init__(
        self,
        channel: socket.socket,
        pidfd: int,
        output: int,
        *,
        on_ready: Callable[[SandboxSession], None],
        on_gone: Callable[[SandboxSession], None],
        kill_jail: Callable[[], None] | None = None,
    ) -> None:
        """Takes over the three descriptors. `kill_jail`: where the session has no pid namespace
        of its own and killing its process would leave others."""
        channel.setblocking(False)
        self._channel = channel
        self._pidfd = pidfd
        self._output = output
        self._on_ready = on_ready
        self._on_gone = on_gone
        self._kill_jail = kill_jail
        self._loop = asyncio.get_running_loop()
        self._incoming = wire.Assembler(_MESSAGE_BYTES)
        self._number = 0
        self._answer: asyncio.Future[wire.Done | None] | None = None
        self._stopped: Ending | None = None
        self._grace = GRACE_SECONDS
        self._press_timer: asyncio.TimerHandle | None = None
        self._hung_up = False
        self._post_mortem: asyncio.TimerHandle | None = None
        self._wait_status: int | None = None
        self._cause: tuple[Ending, str] | None = None
        self._closed = False
        self.ready = False
        self.gone: str | None = None
        """Why the session cannot be called any more; None while it can."""
        self._loop.add_reader(channel.fileno(), self._on_readable)

    @property
    def taken_down(self) -> str | None:
        """Why it is gone, if its code is not the cause; None otherwise."""
        if self._cause is None or self._cause[0] is not Ending.TAKEN_DOWN:
            return None
        return self.gone

    @property
    def used(self) -> bool:
        """Whether it was ever given code."""
        return self._number > 0

    @property
    def pid_namespaces(self) -> int:
        """Number of pid namespaces between the session's process and this one; 0 = it shares this
        one's."""
        with open(f"/proc/self/fdinfo/{self._pidfd}", encoding="utf-8") as file:
            for line in file:
                if line.startswith("NSpid:"):
                    return len(line.split()) - 2
        return 0

    async def run(
        self,
        code: str,
        *,
        limit: float,
        keep: int,
        attach: int | None = None,
        grace: float = GRACE_SECONDS,
    ) -> Outcome:
        """Runs `code`; stores at most `keep` bytes of output. A session that is gone runs nothing;
        the outcome says what became of it.

        `attach`: a descriptor that the session gets with the call, for drivers that take one.
        `grace`: seconds between the interrupt at the limit and the kill.
        """
        if self.gone is not None:
            outcome = self._outcome(None, keep, 0.0)
            # It was an earlier call that was stopped.
            stopped = outcome.ending in (Ending.TIMEOUT, Ending.CANCELLED)
            return replace(outcome, ending=Ending.CRASHED) if stopped else outcome
        if self._answer is not None:
            raise RuntimeError("a session runs one call at a time")
        self._number += 1
        self._stopped = None
        self._grace = grace
        answer = self._answer = self._loop.create_future()
        started = time.perf_counter()
        timer = self._loop.call_later(limit, self._stop, Ending.TIMEOUT)
        try:
            # One byte more, so that cut output differs from output that just fits.
            await self._send(
                wire.pack_call(self._number, keep + 1, code.encode("utf-8", "replace")), attach
            )
            done = await answer
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            timer.cancel()
            if self._press_timer is not None:
                self._press_timer.cancel()
                self._press_timer = None
            self._answer = None
        return self._outcome(done, keep, time.perf_counter() - started)

    def cancel(self) -> bool:
        """Stops the call in flight as its limit would; False without a call."""
        if self._answer is None or self._answer.done():
            return False
        self._stop(Ending.CANCELLED)
        return True

    def condemn(self, ending: Ending, reason: str) -> None:
        """Ends the session for breaking a limit."""
        if self._cause is None:
            self._cause = (ending, reason)
        self.kill()

    def kill(self) -> None:
        if self._kill_jail is not None:
            self._kill_jail()
        else:
            self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Ends the process and gives its descriptors back. Idempotent."""
        if self._closed:
            return
        self.kill()
        self._hang_up()
        self._closed = True
        self._channel.close()
        os.close(self._pidfd)
        os.close(self._output)
        self._bury()

    def reaped(self, wait_status: int) -> None:
        """The zygote's word on how the process ended."""
        self._wait_status = wait_status
        if self._hung_up:
            self._bury()

    def _outcome(self, done: wire.Done | None, keep: int, run_seconds: float) -> Outcome:
        output, cut = self._read_output(keep)
        if done is None:
            ending, reason = self._cause or (Ending.CRASHED, "its process is gone")
            return Outcome(
                ending=ending,
                output=output,
                truncated=cut,
                run_seconds=run_seconds,
                lost=True,
                reason=reason,
            )
        ending = self._stopped or _ENDINGS[done.status]
        return Outcome(
            ending=ending,
            output=output,
            truncated=cut or done.written > keep,
            run_seconds=run_seconds,
        )

    def _read_output(self, keep: int) -> tuple[str, bool]:
        if self._closed:
            return "", False
        data = os.pread(self._output, keep + 1, 0)
        # So that a later call that never began is not taken to have printed this.
        os.ftruncate(self._output, 0)
        cut = len(data) > keep
        # A character that the cut went through is left out; any other odd byte is shown as such.
        text = data[:keep].decode("utf-8", "replace")
        return (text.rstrip("\ufffd") if cut else text), cut

    async def _send(self, message: bytes, attach: int | None) -> None:
        for packet in wire.split(message):
            while not self._hung_up:
                try:
                    if attach is None:
                        self._channel.send(packet)
                    else:
                        socket.send_fds(self._channel, [packet], [attach])
                        attach = None
                    break
                except BlockingIOError:
                    await self._writable()
                except OSError:
                    return  # It died; the reader will find out and answer.

    async def _writable(self) -> None:
        waiting = self._loop.create_future()
        number = self._channel.fileno()
        self._loop.add_writer(number, _wake, waiting)
        try:
            await waiting
        finally:
            self._loop.remove_writer(number)

    def _on_readable(self) -> None:
        try:
            packet = self._channel.recv(wire.PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._lose_touch()
            return
        try:
            message = self._incoming.feed(packet)
            if message is not None:
                self._obey(message)
        except wire.WireError as error:
            self.condemn(Ending.CRASHED, f"its process spoke out of turn ({error})")
            # Nothing it says after that counts.
            self._lose_touch()

    def _obey(self, message: bytes) -> None:
        if not self.ready:
            if message[:1] == bytes((wire.READY,)):
                self.ready = True
                self._on_ready(self)
            else:
                reason = message[1:].decode("utf-8", "replace")
                self._cause = (Ending.CRASHED, f"its process could not be confined: {reason}")
            return
        done = wire.parse_done(message)
        if self._answer is None or done.number != self._number or self._answer.done():
            raise wire.WireError("an answer without a call")
        self._answer.set_result(done)

    def _stop(self, ending: Ending) -> None:
        if self._stopped is None and self._answer is not None and not self._answer.done():
            self._stopped = ending
            self._press(ending, self._loop.time() + self._grace)

    def _press(self, ending: Ending, kill_at: float) -> None:
        """Interrupts repeatedly until the call stops or its grace is over: on a busy machine an
        interrupt before the code has begun has no effect."""
        left = kill_at - self._loop.time()
        if left <= 0:
            self.condemn(ending, f"it went on for {self._grace:g} s after it was interrupted")
            return
        self._signal(signal.SIGINT)
        pause = min(left, _INTERRUPT_SECONDS)
        self._press_timer = self._loop.call_later(pause, self._press, ending, kill_at)

    def _signal(self, number: signal.Signals) -> None:
        if self._closed:
            return
        with contextlib.suppress(ProcessLookupError):
            if number is signal.SIGINT:
                with contextlib.suppress(OSError):
                    # Programs that the code waits for stop too, as they would at a terminal.
                    signal.pidfd_send_signal(self._pidfd, number, None, _GROUP)
                    return
            signal.pidfd_send_signal(self._pidfd, number)

    def _lose_touch(self) -> None:
        self._hang_up()
        if self._wait_status is not None or self._cause is not None:
            self._bury()
        else:
            self._post_mortem = self._loop.call_later(_POST_MORTEM_SECONDS, self._bury)

    def _hang_up(self) -> None:
        if not self._hung_up:
            self._hung_up = True
            self._loop.remove_reader(self._channel.fileno())

    def _bury(self) -> None:
        """Finishes the session once its process is gone and the reason is known, as far as
        possible."""
        if self._post_mortem is not None:
            self._post_mortem.cancel()
            self._post_mortem = None
        if self.gone is not None:
            return
        if self._cause is None:
            ending = Ending.CRASHED if self.used else Ending.TAKEN_DOWN
            self._cause = (ending, _how_it_ended(self._wait_status))
        self.gone = self._cause[1]
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)
        self._on_gone(self)


_ENDINGS = {
    wire.OK: Ending.OK,
    wire.EXCEPTION: Ending.EXCEPTION,
    # The code sent itself the signal.
    wire.INTERRUPTED: Ending.EXCEPTION,
    wire.OUT_OF_MEMORY: Ending.OUT_OF_MEMORY,
}


def _how_it_ended(wait_status: int | None) -> str:
    if wait_status is None:
        return "its process is gone"
    code = os.waitstatus_to_exitcode(wait_status)
    if code >= 0:
        return f"its process ended itself with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"its process was ended by {name}"


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
