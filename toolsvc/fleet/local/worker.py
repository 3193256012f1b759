"""A host in a process of its own, one of several on this machine.

It reads its assignment on its standard input and answers on its standard output (`messages`). It
ends on SIGTERM and when that input ends; the kernel kills it if the front dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO

import structlog

from toolsvc.errors import StartError
from toolsvc.fleet.hosts import Ready
from toolsvc.fleet.local.endpoint import EndpointServicer, FrontLink
from toolsvc.fleet.local.messages import ASK_SESSIONS, LONGEST_LINE, Assignment, Said
from toolsvc.fleet.running import RunningHost
from toolsvc.serving import bound, leave, make_server, service_name
from toolwright.process import loop
from toolwright.process.parent import die_with_parent
from toolwright.process.stderr_log import log_to_stderr
from toolwright.rpc.errors import ListenError
from toolwright.rpc.options import is_unix

log = structlog.get_logger("toolsvc.fleet")


def main() -> None:
    die_with_parent()
    front = _Front()
    log_to_stderr()
    try:
        loop.run(_work(front))
    except (StartError, ListenError) as error:
        front.say(Said(failed=str(error)))
        leave(1)
        raise SystemExit(1) from None
    except Exception:
        log.exception("worker failed")
        leave(1)
        raise
    leave(0)


class _Front:
    """Both ends of the pipe. Plugins print to standard error and get an empty standard input."""

    def __init__(self) -> None:
        self._input = os.fdopen(os.dup(0), "rb")
        self._output: BinaryIO = os.fdopen(os.dup(1), "wb")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)

    def say(self, said: Said) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._output.write(said.line())
            self._output.flush()

    def tell_closed(self, session_id: str) -> None:
        self.say(Said(closed=session_id))

    async def lines(self) -> AsyncIterator[bytes]:
        """The front's lines, until the front ends."""
        reader = asyncio.StreamReader(limit=LONGEST_LINE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._input)
        while line := await reader.readline():
            yield line


async def _work(front: _Front) -> None:
    lines = front.lines()
    line = await anext(lines, b"")
    if not line:
        return
    first = Assignment.model_validate_json(line)
    structlog.contextvars.bind_contextvars(host=first.slot)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    running = RunningHost()
    async with FrontLink(first.front, first.token) as back:
        try:
            front.say(Said(ready=await _start(running, first, back, front.tell_closed)))
            hearing = asyncio.create_task(_hear(front, lines, running))
            hearing.add_done_callback(lambda _: stop.set())
            await stop.wait()
        finally:
            await running.end()
        hearing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await hearing


async def _start(
    running: RunningHost, told: Assignment, back: FrontLink, closed: Callable[[str], None]
) -> Ready:
    host, _ = await running.start(told.config, (), told.link, told.token)
    server = make_server(told.config, told.listen)
    await running.serve(server, EndpointServicer(host, service_name(), back, closed))
    return Ready(
        link=told.link,
        endpoint=bound(_advertised(told), server.port),
        tools=tuple(descriptor.name for descriptor in host.list_tools()),
        isolation=host.isolation,
    )


async def _hear(front: _Front, lines: AsyncIterator[bytes], running: RunningHost) -> None:
    async for line in lines:
        if line == ASK_SESSIONS:
            front.say(Said(sessions=running.sessions()))
        else:
            front.say(Said(metrics=running.page()))


def _advertised(assignment: Assignment) -> str:
    """The address as clients write it, before its port is known."""
    if is_unix(assignment.listen) or not assignment.advertise:
        return assignment.listen
    return f"{assignment.advertise}:0"


if __name__ == "__main__":
    main()
