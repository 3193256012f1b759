"""One process that serves agents: how it begins, and how it ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial

import structlog

from ingress.config import IngressTable
from ingress.errors import StartError
from ingress.http.server import IngressServer
from ingress.link import EngineLink
from ingress.metrics import Metrics
from ingress.model_call import Text
from ingress.text.tails import Tails, splittable
from ingress.text.workers import TextWorkers
from ingress.workers import serve_by_workers, watch_parent
from toolwright.chat.tokenizer import ChatTokenizer
from toolwright.process.metrics_page import port_fault, threaded_page
from toolwright.process.stop_signals import stop_event
from toolwright.recipe import Recipe
from toolwright.rpc.channel import open_channel
from toolwright.rpc.options import TOKEN_VARIABLE, may_have_token

log = structlog.get_logger("ingress")


async def serve(recipe: Recipe, table: IngressTable, *, worker: bool = False) -> None:
    """Serves until SIGTERM or Ctrl-C. worker: one of several; ends with its parent too. Raises
    StartError or ListenError before that."""
    stop = stop_event()
    if worker:
        watch_parent(stop.set)
    policy = recipe.shared.policy
    make = partial(
        ChatTokenizer,
        recipe.resolve(policy.model),
        foreign_text=policy.foreign_text,
        template=policy.template,
    )
    async with served(make, table, engine=recipe.shared.run.engine, worker=worker) as server:
        host = table.address.rpartition(":")[0]
        print(f"serving agents on http://{host}:{server.port}", flush=True)
        await stop.wait()


async def serve_many(words: Sequence[str], table: IngressTable) -> None:
    """Serves by `table.workers` processes until SIGTERM or Ctrl-C. words: see `serve_by_workers`.
    Raises as `serve`."""
    await serve_by_workers(words, table.workers, table.address, stop_event())


@asynccontextmanager
async def served(
    make: partial[ChatTokenizer], table: IngressTable, *, engine: str, worker: bool = False
) -> AsyncIterator[IngressServer]:
    """The server, as long as the block runs. make: reads the policy's tokenizer. engine: address
    of the engine. worker: other processes share the address. Raises StartError or ListenError."""
    metrics = Metrics()
    try:
        tokenizer = await asyncio.to_thread(make)
        workers = TextWorkers(lambda: Tails(make()), table.threads)
        tails = await asyncio.to_thread(splittable, tokenizer)
        text = Text(tokenizer, workers, tails=tails, metrics=metrics)
    except ValueError as error:  # of the folder, or of the chat template
        raise StartError(f"policy.model: {error}") from error
    if not text.tails:
        log.warning("the chat template has no tails: each request is encoded as a whole")
    token = os.environ.get(TOKEN_VARIABLE, "") if may_have_token(engine, engine) else ""
    channel = open_channel(engine, token)
    try:
        link = EngineLink(channel, tokenizer.hash)
        async with IngressServer(link, text, table, shared=worker) as server:
            with _metrics_page(metrics, table.metrics_port):
                yield server
    finally:
        await channel.close()
        workers.close()


@contextmanager
def _metrics_page(metrics: Metrics, port: int) -> Iterator[None]:
    """The page for Prometheus; none for port 0. Raises StartError if the port is taken."""
    with ExitStack() as stack:
        try:
            if port:
                stack.enter_context(threaded_page(metrics.registry, port))
        except OSError as error:
            raise StartError(port_fault("ingress.metrics_port", port)) from error
        yield
