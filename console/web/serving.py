"""Serves the pages until a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from console.errors import ConsoleError, RecordBroken
from console.web.app import application
from console.web.index.schema import cache_folder
from console.web.runs import NewRuns, find_runs, open_runs
from toolwright.rpc.auth import tokens_here
from toolwright.rpc.http_rule import names_of
from toolwright.rpc.options import TOKEN_VARIABLE, is_local
from toolwright.rpc.server import cannot_listen

BACKLOG = 128
MOST_CONNECTIONS = 256
GOODBYE_S = 1
"""For streams that would go on forever."""


async def serve(named: Sequence[Path], listen: str) -> None:
    """Until SIGINT or SIGTERM. ConsoleError for what cannot be shown, or served there."""
    host, port = _address(listen)
    tokens = tokens_here()
    if not (is_local(listen) or tokens):
        raise ConsoleError(
            f"{listen} is reachable from other machines: set a bearer token ({TOKEN_VARIABLE}), "
            "or listen on 127.0.0.1"
        )
    folders = find_runs(named)
    bound = _bind(host, port, listen)
    try:
        cache = cache_folder()
        runs = open_runs(folders, cache)
    except (sqlite3.Error, OSError) as error:
        bound.close()
        raise RecordBroken(
            f"no index can be kept ({error}): make room, or name another folder by XDG_CACHE_HOME"
        ) from error
    config = uvicorn.Config(
        application(runs, tokens, names_of(listen), NewRuns(named, cache)),
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GOODBYE_S,
    )
    server = _Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.stop)
    several = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    shown = f"[{host}]" if ":" in host else host
    print(f"{several} at http://{shown}:{bound.getsockname()[1]}/", flush=True)
    if tokens:
        print(f"the page asks for the token of {TOKEN_VARIABLE}", flush=True)
    await server.serve([bound])


class _Server(uvicorn.Server):
    """Leaves signals to its caller."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.should_exit = True


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConsoleError(f"{listen!r} is no address: write HOST:PORT, such as 127.0.0.1:8400")
    return host.strip("[]"), int(port)


def _bind(host: str, port: int, listen: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)  # requests before the server has begun wait
    except OSError as error:
        bound.close()
        raise ConsoleError(str(cannot_listen(listen))) from error
    return bound
