"""One of several processes that serve behind one address.

It is told what to be on its standard input, and answers on its standard output (`messages`).
It ends on SIGTERM, when that input ends, and, by the kernel's hand, with its supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import AsyncIterator
from typing import BinaryIO

import structlog
from prometheus_client import generate_latest

from toolsvc.edge.metrics import Metrics
from toolsvc.errors import StartError
from toolsvc.serving import (
    bound,
    drain,
    leave,
    log_to_stderr,
    make_server,
    running_host,
    service_name,
    start_server,
)
from toolsvc.workers.messages import (
    LONGEST_LINE,
    TO_WORKER,
    Assignment,
    Failed,
    Membership,
    Message,
    MetricsPage,
    Ready,
)
from toolsvc.workers.routing import RoutedServicer
from toolsvc.workers.siblings import Siblings
from toolwright import loop
from toolwright.rpc.errors import ListenError
from toolwright.rpc.options import is_unix

_PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    supervisor = _Supervisor()
    log_to_stderr()
    try:
        loop.run(_work(supervisor))
    except (StartError, ListenError) as error:
        supervisor.say(Failed(sentence=str(error)))
        leave(1)
        raise SystemExit(1) from None
    leave(0)


class _Supervisor:
    """Both ends of the pipe. What plugins print goes to standard error, and they read nothing."""

    def __init__(self) -> None:
        self._input = os.fdopen(os.dup(0), "rb")
        self._output: BinaryIO = os.fdopen(os.dup(1), "wb")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)

    def say(self, message: Message) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._output.write(message.line())
            self._output.flush()

    async def lines(self) -> AsyncIterator[bytes]:
        """Ends with the supervisor."""
        reader = asyncio.StreamReader(limit=LONGEST_LINE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._input)
        while line := await reader.readline():
            yield line


async def _work(supervisor: _Supervisor) -> None:
    lines = supervisor.lines()
    line = await anext(lines, b"")
    if not line:
        return
    first = TO_WORKER.validate_json(line)
    if not isinstance(first, Assignment):
        raise TypeError(f"the first message is {first.kind}, not an assignment")
    structlog.contextvars.bind_contextvars(worker=first.slot)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    siblings = Siblings(first.slot)
    async with running_host(first.config) as (host, metrics):
        more = tuple(filter(None, (first.public, first.link)))
        server = make_server(first.config, first.listen, more=more, share_port=True)
        await start_server(server, RoutedServicer(host, service_name(), siblings))
        supervisor.say(
            Ready(
                endpoint=bound(_advertised(first), server.port),
                tools=tuple(descriptor.name for descriptor in host.list_tools()),
                isolation=host.isolation,
            )
        )
        hearing = asyncio.create_task(_hear(supervisor, lines, siblings, metrics))
        hearing.add_done_callback(lambda _: stop.set())
        await stop.wait()
        await drain(server, host)
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
        await siblings.close()


async def _hear(
    supervisor: _Supervisor, lines: AsyncIterator[bytes], siblings: Siblings, metrics: Metrics
) -> None:
    async for line in lines:
        message = TO_WORKER.validate_json(line)
        if isinstance(message, Membership):
            siblings.update(message.view)
        else:
            page = generate_latest(metrics.registry).decode()
            supervisor.say(MetricsPage(text=page))


def _advertised(assignment: Assignment) -> str:
    """The address as clients write it, before its port is known."""
    if is_unix(assignment.listen) or not assignment.advertise:
        return assignment.listen
    return f"{assignment.advertise}:0"


if __name__ == "__main__":
    main()
