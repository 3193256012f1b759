"""Docker and podman by their command line, which is the same for both: words, questions, faults.

Tool services run boxes in containers, and the agent host runs agents in them.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence

OUT, ERRORS = 1, 2
Take = Callable[[int, bytes], None]
"""Gets what a process prints: OUT or ERRORS, and a piece of it."""
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
"""Capabilities that building and testing software as root in a container takes; all others are
dropped."""
SECONDS = 30.0
"""Longest time of every command of the program but the start of a container, in seconds."""
NO_CONTAINER = 125
"""Exit code of the program's own failures."""
_PIECE = 64 * 1024


def bounds(memory_bytes: int, processes: int) -> list[str]:
    """Words of `run` and `create`: few privileges, and limits without swap."""
    return [
        *("--security-opt", "no-new-privileges", "--cap-drop", "ALL"),
        *(f"--cap-add={capability}" for capability in CAPABILITIES),
        *("--pids-limit", str(processes)),
        *("--memory", str(memory_bytes), "--memory-swap", str(memory_bytes)),
    ]


async def program_fault(program: str) -> str:
    """Why the program cannot be used, with the fix; "" if it can."""
    if shutil.which(program) is None:
        return f"{program} is not on PATH: install it"
    code, said = await ask(program, "version")
    if code:
        return (
            f"{program} cannot be used ({last_line(said)}): start its service, or let this "
            "account use it"
        )
    return ""


async def ask(program: str, *arguments: str, limit: float | None = SECONDS) -> tuple[int, str]:
    """Exit code and output. limit: in seconds; an image may have to be fetched first."""
    said = bytearray()
    try:
        async with asyncio.timeout(limit):
            code = await run(program, arguments, b"", lambda _, data: said.extend(data))
    except TimeoutError:
        return NO_CONTAINER, f"no answer in {limit:g} s"
    return code, said.decode("utf-8", "replace")


async def run(program: str, arguments: Sequence[str], given: bytes, take: Take) -> int:
    """The exit code of the program. given: its input. Cancellation ends the program."""
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_give(process.stdin, given))
            group.create_task(_pass_on(process.stdout, OUT, take))
            group.create_task(_pass_on(process.stderr, ERRORS, take))
        return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _give(stdin: asyncio.StreamWriter, given: bytes) -> None:
    if stdin.is_closing():  # The program has ended: uvloop raises RuntimeError at a write.
        return
    try:
        stdin.write(given)
        await stdin.drain()
        stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        return  # It ended without reading all.


async def _pass_on(stream: asyncio.StreamReader, number: int, take: Take) -> None:
    while data := await stream.read(_PIECE):
        take(number, data)


def last_line(said: str) -> str:
    """The last line of an output, for a message."""
    return said.strip().rpartition("\n")[2] or "it said nothing"
