"""One bash that lives from command to command.

It owns the process, three pipes and the wait for a command's end. bash is interactive for one
reason: after an interrupt it takes the next command, with directory, variables and functions kept.
A bash that is not interactive would end.

Invariants
- A command is over when bash itself says so, by a new word each time, on a pipe that the programs
  of a command do not get. What they print cannot end it, and a background job that keeps
  the output open does not delay it.
- The word of bash counts for its own session only. A command runs in bash and can fake any exit
  code: by a function named `builtin`, a trap, or a read from the descriptor of bash's input. No
  other process could know better.
- Standard output and error are one pipe, read as fast as it is written: the first bytes are kept,
  the others counted. What background jobs print between commands comes before the next one's.
- Standard input of a command is empty.
- A bash that ends (`exit`, `exec`, a signal) is replaced at the next command, in the directory
  where the last finished command left the old one; the answer says so.
- Every process below is reaped.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import select
import shlex
import signal
import time
from typing import NamedTuple

from .terminal import Output

_PROGRAM = "/bin/bash"
_STATUS = 8
"""Descriptor on which bash reports the end of a command. Below 10: bash refuses larger numbers by
name."""
_HIGH = 20
"""The driver's ends of pipes lie above the descriptors that `posix_spawn` sets."""
_PIECE = 64 * 1024
_BETWEEN = 16 * 1024
"""Bytes kept of what background jobs print between commands."""
_TOLD = 16 * 1024
"""Bytes of a report of bash that are read; a report is a word, a number and a path."""
_STUBBORN_SECONDS = 0.4
"""After this long an interrupt that had no effect becomes a kill."""
_AGAIN_SECONDS = 0.2

_NO_TERMINAL = re.compile(
    rb"^bash: \[\d+: \d+ \(\d+\)\] tcsetattr: Inappropriate ioctl for device\n", re.MULTILINE
)
"""Complaints of an interactive bash without a terminal when a signal ended a command."""

_STATUS_CODE = re.compile(rb"[0-9]{1,3}")

KEPT, ENDED, KILLED = "kept", "ended", "killed"
"""What became of bash."""


class Ran(NamedTuple):
    """`code`: the exit status; of bash itself where it ended, None where it was killed.
    `dropped`: bytes of output that were not kept."""

    output: bytes
    dropped: int
    code: int | None
    shell: str
    interrupted: bool


class Bash:
    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self.folder = os.getcwd()
        """Directory in which the last finished command left the shell."""
        self._pid = 0
        self._commands = -1
        self._status = -1
        self._output, self._output_end = _pipe()
        self._told = b""
        self._between = Output(_BETWEEN)
        self._interrupts = 0
        # A signal has to end a `poll`, whose own retry would sleep on.
        self._wake, wake_end = _pipe()
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, self._on_interrupt)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def run(self, command: str, room: int) -> Ran:
        """Runs `command`; keeps at most `room` bytes of what it prints."""
        output = Output(room)
        output.add(bytes(self._between.kept))
        self._between = Output(_BETWEEN)
        self._interrupts = 0
        if not self._pid:
            self._start()
        word = secrets.token_hex(16)
        self._told = b""
        lines = f"builtin eval {shlex.quote(command)} </dev/null {_STATUS}>&-\n{_report(word)}"
        pending = memoryview(lines.encode("utf-8", "surrogateescape"))
        first_interrupt = last_interrupt = 0.0
        seen = 0
        while True:
            pending = self._exchange(output, pending)
            ended = self._reap()
            code = self._finished(word)
            if code is not None:
                shell = KEPT
                break
            if ended is not None:
                shell, code = ENDED, ended
                break
            now = time.monotonic()
            if self._interrupts > seen:
                seen = self._interrupts
                first_interrupt = first_interrupt or now
                if now - first_interrupt > _STUBBORN_SECONDS:
                    self._kill()
                    shell = KILLED
                    break
                if now - last_interrupt > _AGAIN_SECONDS:
                    last_interrupt = now
                    _signal_group(self._pid, signal.SIGINT)
                    # The interrupt may hit bash while it reads this very line.
                    pending = memoryview(bytes(pending) + _report(word).encode())
        self._drain(output)
        said = _NO_TERMINAL.sub(b"", bytes(output.kept))
        return Ran(said, output.dropped, code, shell, first_interrupt > 0)

    def idle(self, channel: int) -> None:
        """Returns once there is something to read on `channel`; sees to background jobs until
        then."""
        poll = select.poll()
        for descriptor in (channel, self._output, self._wake):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._wake in ready:
                _empty(self._wake)
                self._reap()
            if self._output in ready:
                self._between.add(_read(self._output))
            if channel in ready:
                return

    def _start(self) -> None:
        """Starts bash. Raises OSError if the session may have no more processes."""
        commands, commands_end = _pipe()
        status, status_end = _pipe()
        os.set_blocking(commands, True)
        os.set_blocking(commands_end, False)
        home = os.getcwd()
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        try:
            self._pid = os.posix_spawn(
                _PROGRAM,
                ["bash", "--noprofile", "--norc", "--noediting", "+H", "-i"],
                self._environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, commands, 0),
                    (os.POSIX_SPAWN_DUP2, self._output_end, 1),
                    (os.POSIX_SPAWN_DUP2, self._output_end, 2),
                    (os.POSIX_SPAWN_DUP2, status_end, _STATUS),
                ],
                # A group of its own: interrupts come to us first, who pass them on.
                setpgroup=0,
                setsigdef=[signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD],
            )
        except OSError:
            os.close(commands_end)
            os.close(status)
            raise
        finally:
            os.chdir(home)
            os.close(commands)
            os.close(status_end)
        self._commands, self._status = commands_end, status
        self._settle()

    def _settle(self) -> None:
        """Waits until bash takes commands, and drops what it complains of meanwhile: it has no
        terminal."""
        word = secrets.token_hex(16)
        pending = memoryview(f"set +o history; set +m\n{_report(word)}".encode())
        self._told = b""
        complaints = Output(0)
        while self._pid and self._finished(word) is None:
            pending = self._exchange(complaints, pending)
            self._reap()

    def _exchange(self, output: Output, pending: memoryview) -> memoryview:
        """Waits for anything to happen; returns what is left to be sent to bash."""
        poll = select.poll()
        for descriptor in (self._output, self._status, self._wake):
            poll.register(descriptor, select.POLLIN)
        if pending:
            poll.register(self._commands, select.POLLOUT)
        for descriptor, events in poll.poll():
            if descriptor == self._output:
                output.add(_read(self._output))
            elif descriptor == self._status:
                self._told = (self._told + _read(self._status))[-_TOLD:]
            elif descriptor == self._wake:
                _empty(self._wake)
            elif events & select.POLLOUT:
                with contextlib.suppress(BlockingIOError, BrokenPipeError):
                    pending = pending[os.write(self._commands, pending[:_PIECE]) :]
        return pending

    def _finished(self, word: str) -> int | None:
        """The command's exit status, once bash has reported it."""
        # The first report: one more is asked for after each interrupt.
        _, mark, after = self._told.partition(word.encode() + b"\0")
        fields = after.split(b"\0")
        if not mark or len(fields) < 3 or not _STATUS_CODE.fullmatch(fields[0]):
            return None
        self.folder = os.fsdecode(fields[1])
        return int(fields[0])

    def _drain(self, output: Output) -> None:
        """What was printed before bash spoke is in the pipe by now; a job that goes on printing
        must not keep us."""
        for _ in range(32):
            data = _read(self._output)
            if not data:
                return
            output.add(data)

    def _reap(self) -> int | None:
        """Collects whatever has ended; the exit status of bash, if it has."""
        code = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return code
            if pid == 0:
                return code
            if pid == self._pid:
                code = os.waitstatus_to_exitcode(status)
                code = code if code >= 0 else 128 - code
                self._forget()

    def _kill(self) -> None:
        if os.getpid() == 1:
            # All that is in this pid namespace, but us.
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        else:
            _signal_group(self._pid, signal.SIGKILL)
        while self._pid:
            os.waitpid(self._pid, 0)
            self._forget()

    def _forget(self) -> None:
        self._pid = 0
        os.close(self._commands)
        os.close(self._status)

    def _on_interrupt(self, number: int, frame: object) -> None:
        self._interrupts += 1


def _report(word: str) -> str:
    """The line by which bash says that it is done: the word, $? and its directory."""
    return f'builtin printf "%s\\0" {word} "$?" "$PWD" >&{_STATUS}\n'


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _pipe() -> tuple[int, int]:
    """(reading end, which does not block; writing end), both out of the way of a new bash."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _HIGH) for end in ends]
    for end in ends:
        os.close(end)
    os.set_blocking(moved[0], False)
    return moved[0], moved[1]


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _PIECE)
    except BlockingIOError:
        return b""


def _empty(descriptor: int) -> None:
    while _read(descriptor):
        pass
