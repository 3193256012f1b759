"""The event loop of engine and tool service: uvloop's, but for the programs that it starts.

uvloop gives a program copies of its own pipe ends under numbers above 2, and everything that
somebody left inheritable. What the program starts in turn keeps them, so an output does not end
where one of those lives on (podman's `conmon` does, as long as its container).

Invariants
- A program gets 0, 1, 2 and what `pass_fds` names, and no other descriptor of ours; so do programs
  that a library starts, since the loop itself starts all of them.
- `wait` returns when the program has ended, whoever still holds its output.

This is the one module that imports uvloop; a rule of ruff's says so.
"""

from __future__ import annotations

import os
import socket
import subprocess
from asyncio.base_subprocess import BaseSubprocessTransport
from subprocess import PIPE
from typing import Any

import uvloop


class Loop(uvloop.Loop):
    """Not made by hand: `toolwright.process.loop` does."""

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        make_protocol, *command = args
        return await self._begin(make_protocol(), tuple(command), shell=False, **kwargs)

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> Any:
        make_protocol, command = args
        return await self._begin(make_protocol(), command, shell=True, **kwargs)

    async def _begin(
        self,
        protocol: Any,
        command: Any,
        *,
        shell: bool,
        stdin: Any = PIPE,
        stdout: Any = PIPE,
        stderr: Any = PIPE,
        bufsize: int = 0,
        **options: Any,
    ) -> tuple[Any, Any]:
        waiter = self.create_future()
        transport = _Child(
            self, protocol, command, shell, stdin, stdout, stderr, bufsize, waiter, **options
        )
        self._watch(transport)
        try:
            await waiter
        except BaseException:
            transport.close()
            await transport._wait()
            raise
        return transport, protocol

    def _watch(self, transport: _Child) -> None:
        """Tells the transport when its program has ended."""
        handle = os.pidfd_open(transport.number)

        def ended() -> None:
            if (code := transport.ended()) is None:
                return
            self.remove_reader(handle)
            os.close(handle)
            transport._process_exited(code)

        self.add_reader(handle, ended)


class _Child(BaseSubprocessTransport):
    """As asyncio's own for Unix."""

    _proc: subprocess.Popen[bytes]

    def _start(
        self, args: Any, shell: bool, stdin: Any, stdout: Any, stderr: Any, bufsize: int,
        **options: Any,
    ) -> None:  # fmt: skip
        ours = None
        if stdin == PIPE:
            # A socket says when its other end is closed, which a pipe's writing end may not.
            stdin, ours = socket.socketpair()
        try:
            self._proc = subprocess.Popen(
                args, shell=shell, stdin=stdin, stdout=stdout, stderr=stderr, bufsize=bufsize,
                **options,
            )  # fmt: skip
            if ours is not None:
                self._proc.stdin = open(ours.detach(), "wb", buffering=bufsize)  # noqa: SIM115
        finally:
            if ours is not None:
                stdin.close()
                ours.close()

    @property
    def number(self) -> int:
        return self._proc.pid

    def _process_exited(self, returncode: int) -> None:
        super()._process_exited(returncode)
        # Some versions of asyncio tell them when the pipes are closed, and not before.
        waiting = self._exit_waiters or []
        for one in waiting:
            if not one.done():
                one.set_result(returncode)
        waiting.clear()

    def ended(self) -> int | None:
        """The exit code, once there is one."""
        return self._proc.poll()
