"""The common part of boxes in containers, for every runtime.

A container needs bash, coreutils, tar and findutils. Commands travel by standard input, since there
is more room than on a command line; the first line of output is the number of the process that
leads the command's group, by which it can be stopped from beside it.

The runtime of a container may fail, and so may the code in it. The first is a lost session; the
second is the policy's own doing. So a box is checked if it did not run a command, or if its command
was killed: the runtime says whether the container still runs, and how it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import stat
import tarfile
import time
from abc import abstractmethod
from collections.abc import Sequence

from toolsvc.plugin.tool import Cancellation
from toolsvc.sandbox.jailed.drivers.terminal import Output
from toolsvc.tools.files import Entry
from toolsvc.tools.swe.boxes.box import Box, BoxError, BoxGone, CommandRun
from toolwright.containers import OUT, Take
from toolwright.types import ToolErrorKind

_GRACE_SECONDS = 10.0
"""Time beyond a command's own limit for the runtime to report its end, in seconds."""
_WRITE_SECONDS = 120.0
_MESSAGE = 1000
"""Bytes of a failure message that are read."""
_SAID = 300
"""Characters of it that the policy reads."""
_STOPPED = (124, 137)
"""Exit codes of `timeout`."""
_KILLED = (137, 255)
"""Exit codes of a command that was killed with all else in its container, as programs tell it."""
_RUN = (
    'script=$(head -c {size}) && echo $$ && exec timeout -s INT -k 1 {limit} bash -c "$script" '
    "</dev/null {errors}"
)


def main_process(life: float) -> list[str]:
    """First process of a container: it reaps, outlives `kill -9 -1`, and ends by itself."""
    return ["bash", "-c", f"while ((SECONDS < {life:.0f})); do sleep 60; done"]


class ContainerBox(Box):
    """A subclass says how a process is run in it, and whether it still runs."""

    def __init__(self, folder: str, life: float) -> None:
        """`life`: seconds after which it ends by itself."""
        self.folder = folder
        self._life = life
        self._ends = time.monotonic() + life - 1.0  # bash counts whole seconds

    @abstractmethod
    async def _process(self, command: str, given: bytes, take: Take) -> int:
        """Runs bash with the command in the box's folder, `given` as its standard input, and
        returns its exit code. Raises BoxError if the container runs and does not take it; BoxGone
        if its end is not known. Cancelling it leaves the process to itself."""

    @abstractmethod
    async def _ended(self, patient: bool) -> str:
        """How the code in the container ended it, "" while it runs. Raises BoxGone if it was ended
        from outside, or if that is not known. `patient`: something is wrong with it for certain."""

    async def exec(
        self, command: str, *, limit: float, keep: int, cancellation: Cancellation | None = None
    ) -> CommandRun:
        output = _Output(Output(keep))
        stop = asyncio.Event()
        if cancellation is not None:
            cancellation.on_request(stop.set)
        began = time.monotonic()
        code = await self._until(command, limit, "2>&1", output.take, output, stop)
        kind = ToolErrorKind.NONE
        if self.broken is not None:
            kind = ToolErrorKind.CRASHED
        elif stop.is_set():
            kind = ToolErrorKind.CANCELLED
        elif code is None or (code in _STOPPED and time.monotonic() - began >= limit):
            kind = ToolErrorKind.TIMEOUT
        code = code if kind is ToolErrorKind.NONE else None
        return CommandRun(
            bytes(output.rest.kept), output.rest.dropped, code, kind, self.broken or ""
        )

    async def read(self, command: str, *, limit: float, most: int) -> bytes:
        output = _Output(Output(most, raw=True))

        def take(stream: int, data: bytes) -> None:
            if stream == OUT:
                output.take(stream, data)

        code = await self._until(
            f"set -o pipefail; {command}", limit, "2>/dev/null", take, output, asyncio.Event()
        )
        if self.broken is not None:
            raise BoxError(self.broken)
        if code is None or code in _STOPPED:
            raise BoxError(f"reading took longer than {limit:g} s")
        if output.rest.dropped:
            raise BoxError(f"it has more than {most} bytes")
        if code:
            raise BoxError(f"the command ended with exit code {code}")
        return bytes(output.rest.kept)

    async def write(self, entries: Sequence[Entry]) -> None:
        self._check()
        archive = await asyncio.to_thread(_archive, entries)
        begun = b"begun\n"
        said = bytearray()

        def take(_: int, data: bytes) -> None:
            # The program `tar` there is the policy's, and may print without end.
            said.extend(data[: max(0, len(begun) + 4 * _MESSAGE - len(said))])

        unpack = f"head -c {len(archive)} | tar --extract --file=- --no-same-owner 2>&1"
        command = f"echo begun; set -o pipefail; {unpack}"
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                code = await self._process(command, archive, take)
        except TimeoutError:
            await self._look()
            raise BoxError(f"writing took longer than {_WRITE_SECONDS:g} s") from None
        except BoxGone as error:
            raise await self._reason(error) from error
        told = said.removeprefix(begun).decode("utf-8", "replace").strip()[:_MESSAGE]
        if not said.startswith(begun):
            raise await self._not_run(told)
        if code:
            raise BoxError(told or f"exit code {code}")

    async def _until(
        self, command: str, limit: float, errors: str, take: Take, output: _Output,
        stop: asyncio.Event,
    ) -> int | None:  # fmt: skip
        """The exit code; None where the command had to be stopped from beside. What it did may have
        ended the box, which is `broken` then. Raises BoxError if it was not run, BoxGone."""
        self._check()
        script = command.encode("utf-8", "surrogateescape")
        line = _RUN.format(size=len(script), limit=f"{limit:.3f}", errors=errors)
        process = asyncio.create_task(self._process(line, script, take))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait(
                (process, stopped),
                timeout=limit + _GRACE_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not process.done():
                if not stop.is_set():
                    await self._look()
                if self.broken is None:
                    await self._kill(output.leader)
                return None
            code = process.result()
        except BoxGone as error:
            raise await self._reason(error) from error
        finally:
            for task in (process, stopped):
                task.cancel()
            await asyncio.wait((process, stopped))
        if output.leader is None:
            raise await self._not_run(bytes(output.said).decode("utf-8", "replace").strip())
        if code in _KILLED:
            await self._look(patient=False)
        return code

    def _check(self) -> None:
        """BoxGone, or BoxError, where it has ended already."""
        if self.gone is not None:
            raise BoxGone(self.gone)
        if self.broken is not None:
            raise BoxError(self.broken)

    async def _look(self, *, patient: bool = True) -> None:
        """Whether it still runs. Where what ran in it ended it, it is `broken`. Raises BoxGone."""
        try:
            ended = await self._ended(patient)
        except BoxGone as error:
            self.gone = str(error)
            raise
        if ended and time.monotonic() >= self._ends:
            self.gone = f"it ended by itself after {self._life:g} s"
            raise BoxGone(self.gone)
        self.broken = ended or None

    async def _reason(self, error: BoxGone) -> Exception:
        """Why the end of a command is not known: Raises BoxError if what ran in the box ended the
        box, else the error."""
        if self.gone is not None:
            return error
        await self._look()
        if self.broken is not None:
            return BoxError(self.broken)
        self.gone = str(error)
        return error

    async def _not_run(self, said: str) -> BoxError:
        """The error for a command that did not begin. A box that runs and takes no command has no
        room for another process, or no bash any more: the policy did that."""
        await self._look()
        return BoxError(self.broken or f"no command can be run: {said[:_SAID] or 'bash is gone'}")

    async def _kill(self, leader: int | None) -> None:
        if leader is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._process(f"kill -KILL -- -{leader}", b"", lambda _, data: None)


class _Output:
    """The process number of the first line, and what is kept of the others."""

    def __init__(self, rest: Output) -> None:
        self.rest = rest
        self.leader: int | None = None
        self.said = bytearray()
        """What came instead of a first line that is a number."""

    def take(self, stream: int, data: bytes) -> None:
        if self.leader is None:
            self.said += data
            first, line_end, data = bytes(self.said).partition(b"\n")
            if not line_end or not first.isdigit():
                del self.said[_MESSAGE:]
                return
            self.leader = int(first)
        self.rest.add(data)


def _archive(entries: Sequence[Entry]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            member = tarfile.TarInfo(entry.path)
            member.mode = stat.S_IMODE(entry.mode)
            if stat.S_ISDIR(entry.mode):
                member.type = tarfile.DIRTYPE
            elif stat.S_ISLNK(entry.mode):
                member.type = tarfile.SYMTYPE
                member.linkname = entry.content.decode("utf-8", "surrogateescape")
            else:
                member.size = len(entry.content)
            archive.addfile(member, io.BytesIO(entry.content))
    return target.getvalue()
