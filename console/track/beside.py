"""A run's trackers as a process of their own, for as long as a block runs.

A library that hangs, or takes the interpreter's lock, costs the one who watches the run nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from console.track.tracker import Destination

LAST_LOOK_S = 30.0
"""From SIGTERM to SIGKILL; a little more than the process itself allows its libraries."""


@asynccontextmanager
async def tracking(
    run: Path,
    to: Sequence[Destination],
    *,
    log: Path,
    say: Callable[[str], None],
    hurried: asyncio.Event | None = None,
) -> AsyncIterator[None]:
    """Runs `toolwright track RUN --to ...` while the body does; its last look follows the body.

    log: where it writes. say: is given each of its complaints, a sentence. hurried: once set, there
    is no last look. Nothing is raised for a tracker that fails; OSError where no process can be
    started. Cancelled while it waits for the last look, it kills the process at once.
    """
    if not to:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab", buffering=0) as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "console.cli", "track", str(run), "--to", ",".join(to)),
            "--with-parent",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        reader = asyncio.create_task(_pass_on(process, out.write, say))
        try:
            yield
        finally:
            await _end(process, reader, hurried or asyncio.Event())


async def _pass_on(
    process: asyncio.subprocess.Process,
    write: Callable[[bytes], object],
    say: Callable[[str], None],
) -> None:
    assert process.stderr is not None, "it was asked for"
    while True:
        try:
            line = await process.stderr.readline()
        except ValueError:
            # A library wrote a line beyond the stream's limit; it is not for people.
            continue
        if not line:
            return
        # A full disk ends the log, not the reader: else the tracker would wait for a full pipe.
        with suppress(OSError):
            write(line)
        text = line.decode(errors="replace").strip()
        if text.startswith("track: "):
            say(text)


async def _end(
    process: asyncio.subprocess.Process, reader: asyncio.Task[None], hurried: asyncio.Event
) -> None:
    waits = [asyncio.create_task(process.wait()), asyncio.create_task(hurried.wait())]
    try:
        _tell(process, signal.SIGTERM)
        await asyncio.wait(waits, timeout=LAST_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        _tell(process, signal.SIGKILL)
        for task in (*waits, reader):
            task.cancel()
        await asyncio.gather(process.wait(), *waits, reader, return_exceptions=True)


def _tell(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Not by `send_signal`, which reaps one that has just ended in place of who waits for it."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
