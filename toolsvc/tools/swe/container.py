"""What boxes in containers have in common, whatever runs the containers.

A container needs bash, coreutils, tar and findutils. Commands travel by standard input, since there
is more room than on a command line; the first line of output is the number of the process that
leads the command's group, by which it can be stopped from beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import stat
import tarfile
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence

from toolsvc.plugin.tool import Cancellation
from toolsvc.tools.files import Entry
from toolsvc.tools.swe.box import Box, BoxError, BoxGone, Ran
from toolwright.types import ToolErrorKind

OUT, ERRORS = 1, 2
Take = Callable[[int, bytes], None]
"""Gets what a process prints: OUT or ERRORS, and a piece of it."""

CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
"""What building and testing software as root in a container takes; all others are dropped."""

_GRACE_SECONDS = 10.0
"""Beyond a command's own limit, for whoever runs the container to tell that it has ended."""
_WRITE_SECONDS = 120.0
_MESSAGE = 1000
"""Bytes of a failure that are looked at."""
_STOPPED = (124, 137)
"""Exit codes of `timeout`."""
_RUN = (
    'script=$(head -c {size}); echo $$; exec timeout -s INT -k 1 {limit} bash -c "$script" '
    "</dev/null {errors}"
)


def main_process(life: float) -> list[str]:
    """Of a container: it reaps what is left to it, outlives `kill -9 -1`, and ends by itself."""
    return ["bash", "-c", f"while ((SECONDS < {life:.0f})); do sleep 60; done"]


class ContainerBox(Box):
    """A subclass says how a process is run in it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @abstractmethod
    async def _process(self, command: str, given: bytes, take: Take) -> int:
        """Runs bash with the command in the box's folder, `given` as its standard input, and
        returns its exit code. BoxGone if the container does not take it. Cancelling it leaves
        the process to itself."""

    async def exec(
        self, command: str, *, limit: float, keep: int, cancellation: Cancellation | None = None
    ) -> Ran:
        output = _Output(keep)
        stop = asyncio.Event()
        if cancellation is not None:
            cancellation.on_request(stop.set)
        began = time.monotonic()
        code = await self._until(command, limit, "2>&1", output.take, output, stop)
        kind = ToolErrorKind.NONE
        if stop.is_set():
            kind = ToolErrorKind.CANCELLED
        elif code is None or (code in _STOPPED and time.monotonic() - began >= limit):
            kind = ToolErrorKind.TIMEOUT
        code = code if kind is ToolErrorKind.NONE else None
        return Ran(bytes(output.kept), output.dropped, code, kind)

    async def read(self, command: str, *, limit: float, most: int) -> bytes:
        output = _Output(most)

        def take(stream: int, data: bytes) -> None:
            if stream == OUT:
                output.take(stream, data)

        code = await self._until(
            f"set -o pipefail; {command}", limit, "2>/dev/null", take, output, asyncio.Event()
        )
        if code is None or code in _STOPPED:
            raise BoxError(f"reading took longer than {limit:g} s")
        if output.dropped:
            raise BoxError(f"it has more than {most} bytes")
        if code:
            raise BoxError(f"the command ended with exit code {code}")
        return bytes(output.kept)

    async def write(self, entries: Sequence[Entry]) -> None:
        archive = await asyncio.to_thread(_archive, entries)
        said = bytearray()
        begun = b"begun\n"
        unpack = f"head -c {len(archive)} | tar --extract --file=- --no-same-owner 2>&1"
        command = f"echo begun; set -o pipefail; {unpack}"
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                code = await self._process(command, archive, lambda _, data: said.extend(data))
        except TimeoutError:
            raise BoxError(f"writing took longer than {_WRITE_SECONDS:g} s") from None
        told = said.removeprefix(begun).decode("utf-8", "replace").strip()[:_MESSAGE]
        if not said.startswith(begun):
            self.gone = told or "it has ended"
            raise BoxGone(self.gone)
        if code:
            raise BoxError(told or f"exit code {code}")

    async def _until(
        self, command: str, limit: float, errors: str, take: Take, output: _Output,
        stop: asyncio.Event,
    ) -> int | None:  # fmt: skip
        """The exit code; None where the command had to be stopped from beside."""
        if self.gone is not None:
            raise BoxGone(self.gone)
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
                await self._kill(output.leader)
                return None
            code = process.result()
        except BoxGone as error:
            self.gone = str(error)
            raise
        finally:
            for task in (process, stopped):
                task.cancel()
            await asyncio.wait((process, stopped))
        if output.leader is None:
            self.gone = bytes(output.said).decode("utf-8", "replace").strip() or "it has ended"
            raise BoxGone(self.gone)
        return code

    async def _kill(self, leader: int | None) -> None:
        if leader is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._process(f"kill -KILL -- -{leader}", b"", lambda _, data: None)


class _Output:
    """The process number of the first line, and the first `keep` bytes of the others."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self.leader: int | None = None
        self.said = bytearray()
        """What came instead of a first line that is a number."""
        self.kept = bytearray()
        self.dropped = 0

    def take(self, stream: int, data: bytes) -> None:
        if self.leader is None:
            self.said += data
            first, line_end, data = bytes(self.said).partition(b"\n")
            if not line_end or not first.isdigit():
                del self.said[_MESSAGE:]
                return
            self.leader = int(first)
        head = data[: max(0, self._keep - len(self.kept))]
        self.kept += head
        self.dropped += len(data) - len(head)


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
