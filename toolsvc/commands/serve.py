"""`toolsvc serve`: the service from its first check to its last session's end.

Whatever keeps it from starting is one sentence on standard error and exit code 1."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import structlog
import typer
import uvloop

from toolsvc.built_in import BUILT_IN, parse_settings
from toolsvc.errors import StartError
from toolsvc.host import Host
from toolsvc.loader import load_tools
from toolsvc.sandbox.config import MIB, Isolation, SandboxConfig
from toolsvc.service import SERVICE_NAME, ToolServicer
from toolsvc.tool import Tool, plugins_in_threads
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.rpc.server import ListenError, Server
from toolwright.tool.v1 import tool_pb2_grpc

DRAIN_SECONDS = 10.0
_FILES_PER_SESSION = 3


def serve(
    tools: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME|FILE...",
            help=f"a built-in tool ({', '.join(BUILT_IN)}), or a Python file that defines tools",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="an option of a built-in tool: --set python.output_kib=16"),
    ] = None,
    listen: Annotated[
        str, typer.Option(help="host:port, or unix:/path; port 0 = any that is free")
    ] = "127.0.0.1:50061",
    insecure: Annotated[
        bool, typer.Option(help="listen off loopback without TOOLWRIGHT_TOKEN")
    ] = False,
    max_sessions: Annotated[int, typer.Option(min=1, help="sessions held at once")] = 1024,
    isolation: Annotated[
        Isolation | None,
        typer.Option(help="take this level or refuse to start; default: the best that holds"),
    ] = None,
    ready: Annotated[int, typer.Option(min=0, help="sandboxes held ready for first calls")] = 32,
    shards: Annotated[int, typer.Option(min=1, help="jails that share the sandboxes")] = 2,
    memory_mib: Annotated[int, typer.Option(min=64, help="memory of one session")] = 1024,
    disk_mib: Annotated[int, typer.Option(min=1, help="files of one session, in RAM")] = 256,
    processes: Annotated[int, typer.Option(min=1, help="processes and threads of a session")] = 64,
    sandbox_python: Annotated[
        str | None, typer.Option(help="interpreter in the sandbox; default: the system's")
    ] = None,
    sandbox_user: Annotated[
        str | None, typer.Option(help="account of the sandbox when started as root")
    ] = None,
    landlock_abi: Annotated[
        int | None, typer.Option(min=0, help="for tests: pretend that Landlock is this old")
    ] = None,
    userns: Annotated[
        bool, typer.Option("--userns/--no-userns", help="for tests: pretend to have none")
    ] = True,
) -> None:
    """Serve tools until SIGTERM.

    `toolsvc serve python` gives every trajectory a Python session of its own, inside firejail,
    whose variables live from call to call. `toolsvc serve my_tool.py` serves the functions that
    the file decorates with @toolsvc.tool and its toolsvc.Tool subclasses; these run inside the
    service, unconfined. Several may be served together.

    The sandbox tests itself from inside before the service listens, and takes the best level of
    isolation that holds (full, compat, per-session); every response names it. Where none does,
    the service says why and does not start. Bounds: memory by a watch every 0.5 s over all
    processes of a session, files by a watch every second, the rest by the kernel.

    On SIGTERM calls in flight get 10 s, then every session ends and no process is left.
    """
    config = SandboxConfig(
        isolation=isolation,
        landlock_abi=landlock_abi,
        user_namespaces=userns,
        python=sandbox_python,
        user=sandbox_user,
        shards=shards,
        ready=ready,
        memory_bytes=memory_mib * MIB,
        disk_bytes=disk_mib * MIB,
        file_bytes=min(disk_mib, 64) * MIB,
        processes=processes,
    )
    _log_to_stderr()
    try:
        loaded = load_tools(tools, parse_settings(settings or []), config)
        most = _allow_open_files(max_sessions)
        uvloop.run(_serve(loaded, listen, insecure=insecure, max_sessions=most))
    except (StartError, ListenError) as error:
        print(f"toolsvc: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    if plugins_in_threads():
        # A plugin that never returns would keep the process for ever; all else has been closed.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


async def _serve(tools: list[Tool], listen: str, *, insecure: bool, max_sessions: int) -> None:
    log = structlog.get_logger("toolsvc")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = Server(listen, token=os.environ.get(TOKEN_VARIABLE, ""), insecure=insecure)
    async with Host(tools, max_sessions=max_sessions) as host:
        servicer = ToolServicer(host, f"toolsvc {_version()}")

        def register(grpc_server: Any) -> None:
            tool_pb2_grpc.add_ToolServiceServicer_to_server(servicer, grpc_server)

        server.add(SERVICE_NAME, register)
        await server.start()
        # What exists by now stays; the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        names = ", ".join(tool.name for tool in tools)
        where = (
            listen if listen.startswith("unix:") else f"{listen.rpartition(':')[0]}:{server.port}"
        )
        level = f", isolation {host.isolation}" if host.isolation else ""
        print(f"serving {names} on {where}{level}", flush=True)
        await stop.wait()
        await server.set_serving(False)
        await host.drain(DRAIN_SECONDS)
        await server.stop(1.0)
        log.info("stopped", sessions=len(host.session_ids))


def _allow_open_files(max_sessions: int) -> int:
    """Raises the soft limit as far as it goes; returns how many sessions fit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return max_sessions
    return min(max_sessions, max(1, (hard - 512) // _FILES_PER_SESSION))


def _log_to_stderr() -> None:
    renderer: Any = structlog.processors.JSONRenderer()
    if sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _version() -> str:
    try:
        return version("toolwright")
    except PackageNotFoundError:
        return "0"
