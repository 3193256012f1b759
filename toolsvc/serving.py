"""One process that serves tools: how it begins, and how it ends.

`serve_alone` is the whole service. A service of several hosts (`fleet`) has a front, and hosts that
are made of the same parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import structlog

from toolsvc.edge.metrics import Metrics, page_of
from toolsvc.edge.service import SERVICE_NAME, ToolServicer
from toolsvc.edge.traces import CallSpans, call_spans
from toolsvc.errors import StartError
from toolsvc.host.host import Host
from toolsvc.host.watch import Several, Watch
from toolsvc.plugin.executors import plugins_in_threads
from toolsvc.plugin.registry import parse_settings
from toolsvc.plugin.tool import Tool
from toolsvc.sandbox.config import MIB
from toolsvc.service_config import ServiceConfig
from toolsvc.sources.loader import load_tools
from toolwright.process import stop_signals
from toolwright.rpc import options
from toolwright.rpc.auth import readable_by_others, service_tokens
from toolwright.rpc.server import Server
from toolwright.rpc.tls import Certificate, TlsError, read_authority, read_certificate
from toolwright.tool.v1 import tool_pb2_grpc

DRAIN_SECONDS = 10.0
_STDIN = 0
_FILES_PER_SESSION = 3

log = structlog.get_logger("toolsvc")


async def serve_alone(config: ServiceConfig) -> None:
    """Serves until SIGTERM. Raises StartError or ListenError before that."""
    stop = stop_event(until_eof=config.until_eof)
    async with (
        running_host(config) as (host, metrics),
        _verltool_face(config, host),
        metrics_face(config, page_of(metrics.registry)),
    ):
        server = make_server(config, config.listen)
        await start_server(server, ToolServicer(host, service_name()))
        names = tuple(descriptor.name for descriptor in host.list_tools())
        announce(names, bound(config.listen, server.port), host.isolation)
        await stop.wait()
        await drain(host, server)


@contextlib.asynccontextmanager
async def metrics_face(
    config: ServiceConfig, page: Callable[[], Awaitable[bytes]]
) -> AsyncIterator[None]:
    """The page for Prometheus, where it was asked for. Raises StartError."""
    if not config.metrics:
        yield
        return
    from toolsvc.edge.metrics_server import MetricsServer  # brings a web server

    async with MetricsServer(config.metrics, page, public=config.metrics_public):
        yield


@contextlib.asynccontextmanager
async def _verltool_face(config: ServiceConfig, host: Host) -> AsyncIterator[None]:
    """VerlTool's HTTP, where it was asked for."""
    if not config.verltool_http:
        yield
        return
    # Here, for it needs a package that gRPC alone does not.
    from toolsvc.sources.verltool.http import ObservationServer

    async with ObservationServer(
        host,
        config.verltool_http,
        insecure=config.insecure,
        as_there=config.verltool_frames,
    ) as server:
        log.info("serving POST /get_observation", address=config.verltool_http, port=server.port)
        yield


@contextlib.asynccontextmanager
async def running_host(
    config: ServiceConfig, only: Collection[str] = ()
) -> AsyncIterator[tuple[Host, Metrics]]:
    """The started tools, or `only` those with these names, with metrics if they are wanted; every
    session ends with the block."""
    tools = await tools_of(config)
    if only:
        tools = [tool for tool in tools if tool.name in only]
    metrics = Metrics(tools)
    most = _allow_open_files(config.max_sessions)
    with call_spans(config.traces) as spans:
        watches: list[Watch] = [metrics] if config.metrics else []
        if spans is not None:
            watches.append(CallSpans(spans))
            metrics.registry.register(spans)
        async with _host(config, tools, most, watches) as host:
            metrics.look_at(host)
            yield host, metrics


def _host(config: ServiceConfig, tools: list[Tool], most: int, watches: list[Watch]) -> Host:
    return Host(
        tools,
        max_sessions=most,
        observation_limit=config.observation_chars,
        blob_room=config.blobs_mib * MIB,
        watch=watches[0] if len(watches) == 1 else Several(watches),
    )


async def tools_of(config: ServiceConfig) -> list[Tool]:
    """What the configuration names, not started. Raises StartError."""
    return await load_tools(
        config.tools, parse_settings(list(config.settings)), config.sandbox_config
    )


def make_server(config: ServiceConfig, listen: str) -> Server:
    """A gRPC server with the service's tokens and certificate."""
    if remark := readable_by_others():
        log.warning(remark)
    return Server(
        listen,
        tokens=service_tokens(),
        certificate=_certificate(config),
        clients=_clients(config),
        insecure=config.insecure,
        probed=config.health,
    )


async def start_server(server: Server, servicer: ToolServicer) -> None:
    """Listens and answers."""

    def register(grpc_server: Any) -> None:
        tool_pb2_grpc.add_ToolServiceServicer_to_server(servicer, grpc_server)

    server.add(SERVICE_NAME, register)
    await server.start()
    settle()


def settle() -> None:
    """What exists by now stays; the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


async def drain(host: Host, *servers: Server) -> None:
    """Refuses what is new, and gives what runs its grace."""
    for server in servers:
        await server.set_serving(False)
    await host.drain(DRAIN_SECONDS)
    await asyncio.gather(*(server.stop(1.0) for server in servers))
    log.info("stopped", sessions=len(host.session_ids))


def stop_event(*, until_eof: bool) -> asyncio.Event:
    """Event that SIGTERM and SIGINT set, and on request the end of standard input. Raises
    StartError if the end of that input cannot be watched."""
    stop, loop = stop_signals.stop_event(), asyncio.get_running_loop()

    def read() -> None:
        if not os.read(_STDIN, 4096):
            loop.remove_reader(_STDIN)
            stop.set()

    if until_eof:
        try:
            loop.add_reader(_STDIN, read)
        except OSError as error:
            raise StartError(f"--until-eof: standard input has to be a pipe ({error})") from error
    return stop


def announce(tools: tuple[str, ...], where: str, isolation: str, more: str = "") -> None:
    """The one line on standard output."""
    level = f", isolation {isolation}" if isolation else ""
    names = ", ".join(tools) or "tools of each session's own"
    print(f"serving {names} on {where}{level}{more}", flush=True)


def bound(listen: str, port: int) -> str:
    """The address with the port that it got."""
    return listen if options.is_unix(listen) else f"{listen.rpartition(':')[0]}:{port}"


def service_name() -> str:
    try:
        return f"toolsvc {version('toolwright')}"
    except PackageNotFoundError:
        return "toolsvc 0"


def leave(code: int) -> None:
    """Ends the process, where a plugin that never returns would keep it for ever."""
    if plugins_in_threads():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _certificate(config: ServiceConfig) -> Certificate | None:
    if config.tls_cert is None and config.tls_key is None:
        return None
    if config.tls_cert is None or config.tls_key is None:
        raise StartError("--tls-cert and --tls-key belong together: give both, or neither")
    try:
        return read_certificate(config.tls_cert, config.tls_key)
    except TlsError as error:
        raise StartError(str(error)) from error


def _clients(config: ServiceConfig) -> bytes | None:
    if config.tls_client_ca is None:
        return None
    if config.tls_cert is None:
        raise StartError("--tls-client-ca needs --tls-cert and --tls-key beside it")
    try:
        return read_authority(config.tls_client_ca)
    except TlsError as error:
        raise StartError(str(error)) from error


def raise_open_files() -> int:
    """The soft limit as far as it goes, which is returned: connections are files too."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _allow_open_files(max_sessions: int) -> int:
    """Returns how many sessions fit."""
    hard = raise_open_files()
    if hard == resource.RLIM_INFINITY:
        return max_sessions
    fit = max(1, (hard - 512) // _FILES_PER_SESSION)
    if fit < max_sessions:
        log.warning("fewer sessions than asked for", fit=fit, fix=f"raise ulimit -Hn of {hard}")
    return min(max_sessions, fit)
