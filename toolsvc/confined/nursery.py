"""The nursery: a process that has imported a parser and forks one child for each job.

`python -m toolsvc.confined.nursery MODULE MEMORY_BYTES [UID GID]`; its standard input is a packet
socket to the service. It never reads a foreign byte: inputs pass through it as descriptors. It has
one thread, so it may fork, as the service with its threads may not; and a fork takes milliseconds
where a start with all imports takes a second.

Packets are JSON. To it: {"run": number, "request": text, "most": bytes} with two descriptors, input
and answer; {"kill": number}. From it: a `Greeting` first; then {"ended": number, "status": ...}: an
exit code, or minus the signal, or null if no child could be had.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
from typing import Any, NamedTuple

from toolsvc.confined.child import Walls, Work, end_with_parent, live, make_walls

PACKET = 128 * 1024
"""Bytes, of a request with what is around it."""


class Greeting(NamedTuple):
    """`missing`: a package, if one is; the nursery ends then."""

    landlock_abi: int = 0
    missing: str = ""


class Nursery:
    def __init__(self, control: socket.socket, work: Work, walls: Walls) -> None:
        self._control = control
        self._work = work
        self._walls = walls
        self._children: dict[int, tuple[int, int]] = {}
        """By the descriptor of the child: its job's number and its process number."""

    def serve(self) -> None:
        """Until the service hangs up; no child is left then."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor in self._children:
                    poll.unregister(descriptor)
                    self._bury(descriptor)
                    continue
                packet, files, _, _ = socket.recv_fds(self._control, PACKET, 2)
                if not packet:
                    return  # the children end with this process
                message = json.loads(packet)
                if "kill" in message:
                    self._kill(message["kill"])
                elif (born := self._bear(message, files)) is not None:
                    poll.register(born, select.POLLIN)

    def _bear(self, message: dict[str, Any], files: list[int]) -> int | None:
        try:
            me = os.getpid()
            child = os.fork()
            if not child:
                pair = (files[0], files[1])
                live(self._work, message["request"], pair, message["most"], self._walls, me)
            descriptor = os.pidfd_open(child)
            self._children[descriptor] = message["run"], child
        except OSError:
            self._tell({"ended": message["run"], "status": None})
            return None
        finally:
            for file in files:
                os.close(file)
        return descriptor

    def _bury(self, descriptor: int) -> None:
        number, child = self._children.pop(descriptor)
        os.close(descriptor)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self._tell({"ended": number, "status": status})

    def _kill(self, job: int) -> None:
        for number, child in self._children.values():
            if number == job:
                os.kill(child, signal.SIGKILL)

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self._control.send(json.dumps(message).encode())
        except OSError:
            sys.exit()  # the service has gone


def main() -> None:
    module, memory, *account = sys.argv[1:]
    end_with_parent()
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    for which, value in ((resource.RLIMIT_AS, int(memory)), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(which, (value, value))
    control = socket.socket(fileno=os.dup(0))
    try:
        parser = importlib.import_module(module)
    except ModuleNotFoundError as error:
        control.send(json.dumps(Greeting(missing=error.name or str(error))).encode())
        return
    parser.rehearse()
    walls = make_walls((int(account[0]), int(account[1])) if account else None)
    # What is here now is in every child: the collector need not look at it, and copy it, again.
    gc.collect()
    gc.freeze()
    control.send(json.dumps(Greeting(landlock_abi=walls.landlock_abi)).encode())
    Nursery(control, parser.work, walls).serve()


if __name__ == "__main__":
    main()
