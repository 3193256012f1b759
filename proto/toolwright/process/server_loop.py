"""The event loop of engine and tool service: uvloop with its own way to start programs.

uvloop gives a program copies of its own pipe ends under numbers above 2, and every inheritable
descriptor. Processes that the program starts keep them. So an output does not end while one of them
lives: podman's `conmon` lives as long as its container.

Invariants
- A program gets 0, 1, 2 and the descriptors of `pass_fds`, and no others. The loop also starts the
  programs of libraries, so this holds for them too.
- `wait` returns when the program has ended, even if another process still holds its output.

This is the one module that imports uvloop; a rule of ruff enforces it.
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
    """Make it by `toolwright.process.loop`."""

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
        """Notifies the transport when its program has ended."""
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
        # Some versions of asyncio wake them only when the pipes are closed.
        waiting = self._exit_waiters or []
        for one in waiting:
            if not one.done():
                one.set_result(returncode)
        waiting.clear()

    def ended(self) -> int | None:
        """The exit code, or None while the program runs."""
        return self._proc.poll()
