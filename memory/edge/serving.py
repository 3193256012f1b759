"""One process that serves a memory: how it begins, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import structlog

from memory.checks.runner import Runner
from memory.config import MemoryTable
from memory.edge.metrics import MemoryMetrics
from memory.edge.service import MemoryServicer
from memory.errors import PortTaken
from memory.memory import Memory
from memory.opening import open_log, shown
from memory.search.described import TEXTS, joined
from memory.search.embedding import embedder
from toolwright.memory.v1 import memory_pb2, memory_pb2_grpc
from toolwright.process.metrics_page import port_fault, threaded_page
from toolwright.process.stop_signals import stop_event
from toolwright.rpc import options
from toolwright.rpc.auth import tokens_here
from toolwright.rpc.server import Server

DRAIN_SECONDS = 10.0
SLOW_START_S = 2.0
SERVICE_NAME = memory_pb2.DESCRIPTOR.services_by_name["MemoryService"].full_name

log = structlog.get_logger("memory")


async def serve(table: MemoryTable, store: str, *, insecure: bool = False) -> None:
    """Serves until SIGTERM or Ctrl-C. Raises MemoryFault or ListenError before that."""
    stop = stop_event()
    where = shown(store)
    async with _opened(table, store, where, stop) as memory, contextlib.AsyncExitStack() as stack:
        if memory is None:
            return
        server = Server(table.address, tokens=tokens_here(), insecure=insecure)
        metrics = MemoryMetrics()
        servicer = MemoryServicer(memory, table, store=where, metrics=metrics)
        if table.metrics_port:
            _serve_metrics(stack, metrics, table.metrics_port)

        def register(grpc_server: Any) -> None:
            memory_pb2_grpc.add_MemoryServiceServicer_to_server(servicer, grpc_server)

        server.add(SERVICE_NAME, register)
        await server.start()
        graph = memory.graph
        print(
            f"serving {len(graph.by_id)} tools, version {graph.version} of {where}, on "
            f"{_bound(table.address, server.port)}",
            flush=True,
        )
        try:
            await stop.wait()
        finally:
            await server.set_serving(False)
            await server.stop(DRAIN_SECONDS)
            await asyncio.to_thread(servicer.close)
            log.info("stopped", version=memory.graph.version)


@contextlib.asynccontextmanager
async def _opened(
    table: MemoryTable, store: str, where: str, stop: asyncio.Event
) -> AsyncIterator[Memory | None]:
    """The memory, folded in a thread; None if `stop` is set meanwhile."""
    began = time.monotonic()
    runner = _runner(table)
    opening = asyncio.get_running_loop().run_in_executor(None, _open, table, store, runner)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        while not opening.done() and not stop.is_set():
            await asyncio.wait(
                (opening, stopped), timeout=SLOW_START_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not opening.done():
                log.info("opening", store=where, seconds=round(time.monotonic() - began))
        if not opening.done():
            yield None
            return
        yield opening.result()
    finally:
        stopped.cancel()
        if runner is not None:
            runner.close()


def _serve_metrics(stack: contextlib.AsyncExitStack, metrics: MemoryMetrics, port: int) -> None:
    """The page for Prometheus, as long as the stack is open. Raises PortTaken."""
    try:
        stack.enter_context(threaded_page(metrics.registry, port))
    except OSError as error:
        raise PortTaken(port_fault("memory.metrics_port", port)) from error


def _open(table: MemoryTable, store: str, runner: Runner | None) -> Memory:
    name, made = embedder(table.embedder)
    # Before the weights are loaded: another embedder is refused at once.
    changes = open_log(store, embedder=joined(name, table.text_of))
    return Memory(changes, made(), text_of=TEXTS[table.text_of], runner=runner)


def _runner(table: MemoryTable) -> Runner | None:
    if not table.checks:
        return None
    from memory.checks.client import ToolServiceRunner

    return ToolServiceRunner(table.checks, os.environ.get(options.TOKEN_VARIABLE, ""))


def _bound(listen: str, port: int) -> str:
    return listen if options.is_unix(listen) else f"{listen.rpartition(':')[0]}:{port}"
