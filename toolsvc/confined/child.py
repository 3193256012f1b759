"""A job's process: forked by the nursery, it confines itself, parses one input, answers, ends.

Invariants
- Before the first foreign byte is read it has no path, no socket, no capability, no second thread
  or process, no descriptor but three, and is not root. What takes it over can answer wrongly for
  this one input, or take its time and its memory.
- It never outlives the nursery.
- What is confined cannot die by SIGKILL of its own doing. So SIGKILL says: this was not the input.
  A process that cannot confine itself ends in it.

Descriptors: 0 the input, 1 the answer (a file in memory, which the service reads when the process
is gone), 2 nothing.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from toolsvc.confined.calls import program
from toolsvc.sandbox.jailed.walls import kernel

ANSWERED, NO_MEMORY, RAISED = 0, 3, 4
"""Exit codes."""

MOST_SAID = 500
"""Characters of what a parser raised, for the log."""

_PR_SET_PDEATHSIG = 1

Work = Callable[[str, BinaryIO], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """Made once, in the nursery. `account`: user and group to become; None = those that it has."""

    account: tuple[int, int] | None
    landlock_abi: int
    filter: kernel.SeccompProgram
    nothing: int
    """A descriptor of /dev/null."""


def make_walls(account: tuple[int, int] | None) -> Walls:
    """Raises ValueError if this machine's system calls are not known."""
    return Walls(
        account=account,
        landlock_abi=kernel.landlock_abi(),
        filter=kernel.SeccompProgram(program(kernel.MACHINE)),
        nothing=os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC),
    )


def end_with_parent() -> None:
    """SIGKILL when the thread that made this process ends. A change of user undoes it."""
    kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def live(
    work: Work, request: str | None, files: tuple[int, int], most: int, walls: Walls, parent: int
) -> NoReturn:
    """All of the process's life. `files`: input and answer; `most`: bytes of the answer. Without a
    request the answer is what the process could do and should not: a test of the walls."""
    try:
        _confine(files, most, walls, parent)
    except BaseException:  # noqa: BLE001 - nothing may go on from here
        os.kill(os.getpid(), signal.SIGKILL)
    code = RAISED
    try:
        with open(0, "rb", closefd=False) as file:
            answer = _too_much(parent) if request is None else work(request, file)
        _write(answer)
        code = ANSWERED
    except MemoryError:
        code = NO_MEMORY
    except BaseException as error:  # noqa: BLE001 - it is the input's, whatever it is
        _write(f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:MOST_SAID])
    finally:
        os._exit(code)


def _confine(files: tuple[int, int], most: int, walls: Walls, parent: int) -> None:
    for number, descriptor in enumerate((*files, walls.nothing)):
        os.dup2(descriptor, number)
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    for which, value in (
        (resource.RLIMIT_FSIZE, max(most, MOST_SAID)),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(which, (value, value))
    if walls.account is not None:
        user, group = walls.account
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    kernel.not_dumpable()
    end_with_parent()
    if os.getppid() != parent:
        raise ProcessLookupError("the nursery has ended")
    kernel.no_new_privileges()
    if walls.landlock_abi:
        kernel.landlock_restrict(walls.landlock_abi, [])
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    kernel.drop_capabilities(in_own_namespace=False)
    walls.filter.install()


def _too_much(parent: int) -> bytes:
    """What succeeds of what must not, as words."""
    attempts: dict[str, Callable[[], object]] = {
        "open a file": lambda: os.open("/etc/passwd", os.O_RDONLY),
        "look at a path": lambda: os.stat("/etc/passwd"),
        "open a socket": socket.socket,
        "signal its parent": lambda: os.kill(parent, 0),
        "limit its parent": lambda: resource.prlimit(parent, resource.RLIMIT_CORE),
        "start a process": os.fork,
        "make a descriptor": lambda: os.dup(0),
    }
    done = []
    for name, attempt in attempts.items():
        with contextlib.suppress(OSError):
            attempt()
            done.append(name)
    return ", ".join(done).encode()


def _write(answer: bytes) -> None:
    with io.FileIO(1, "wb", closefd=False) as file:
        left = memoryview(answer)
        while left:
            left = left[file.write(left) or 0 :]
