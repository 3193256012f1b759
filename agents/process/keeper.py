"""One agent's keeper: a process that starts the agent, and ends all processes that it leaves.

The host runs this file by its path with one word, a JSON object: `argv`, `folder`, and `stdin`, a
descriptor that becomes the agent's input, or null. It imports the standard library alone.

Invariants
- It is the subreaper of the agent: a process that leaves the agent's session stays below it.
- It ends after the last process below it. The end of its own input ends the agent: the host closes
  it, or the host is dead.
- Its exit code is the agent's, or 128 + N for signal N.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
GRACE_S = 2.0
"""Time from SIGTERM to SIGKILL, in seconds."""
LEAVES_S = 5.0
"""Longest time that killed processes get to disappear, in seconds."""
NOT_STARTED = 127


def main() -> int:
    words = json.loads(sys.argv[1])
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    keeper = os.getpid()
    agent = os.fork()
    if agent == 0:
        _become_agent(words, keeper)
    if words["stdin"] is not None:
        os.close(words["stdin"])
    handle = os.pidfd_open(agent)
    ends = select.poll()
    ends.register(0, select.POLLIN | select.POLLHUP)
    ends.register(handle, select.POLLIN)
    if not any(number == handle for number, _event in ends.poll()):
        _signal_group(agent, signal.SIGTERM)
        only = select.poll()
        only.register(handle, select.POLLIN)
        only.poll(GRACE_S * 1000)
        _signal_group(agent, signal.SIGKILL)
    code = _exit_code(agent)
    end_descendants()
    return code


def _become_agent(words: dict[str, Any], parent: int) -> NoReturn:
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(NOT_STARTED)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")  # without memory the kernel ends agents, not the host
        given = words["stdin"]
        source = os.open(os.devnull, os.O_RDONLY) if given is None else given
        os.dup2(source, 0)
        os.close(source)
        os.chdir(words["folder"])
        os.execvp(words["argv"][0], words["argv"])
    except OSError as error:
        os.write(2, f"{words['argv'][0]} cannot be started: {error}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def _exit_code(pid: int) -> int:
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def end_descendants() -> None:
    """Kills every process below this one, and waits for their end, at most `LEAVES_S`."""
    deadline = time.monotonic() + LEAVES_S
    while time.monotonic() < deadline:
        for pid in _descendants():
            _signal(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name of the program is in brackets, and may hold anything.
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(name))
    found = list(children.get(os.getpid(), ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def _signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except OSError:
        _signal(leader, number)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
