"""`search`: the passages of a fixed corpus that match a query best.

Owns how a query comes in and how passages become an observation: `Doc 1(Title: ...) text`, a line
each, as Search-R1 and VerlTool write them. What goes around it (`<information>`) is the recipe's.

No state, so calls of one session may run at once. A call that waits for its batch is queued, not
running. If it still waits at its run limit, it is refused and the policy reads nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import structlog
from pydantic import BaseModel, Field, model_validator

from toolsvc.backends.search.batcher import BatchFailed, QueueFull
from toolsvc.backends.search.errors import NoVector, WrongVector
from toolsvc.backends.search.http import RetrieveServer
from toolsvc.backends.search.index import Retriever, Sources
from toolsvc.backends.search.remote import RemoteSearcher, RemoteSettings
from toolsvc.backends.search.searcher import BATCH, MOST_HITS, QUEUE, SearchAnswer, Searcher
from toolsvc.backends.search.types import Hit, Query
from toolsvc.backends.search.vectors import decode_vector
from toolsvc.errors import RETRY_SECONDS, Reason, Refused
from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.results import failure, invalid
from toolsvc.plugin.tool import STRICT, Cancellation, OutOfProcess, Tool
from toolsvc.types import Call, Result, TagFormat, Text
from toolwright.recipe.models.spelling import url_fault
from toolwright.types import ToolErrorKind

VECTOR = "query_vector"
"""Key of a call's metadata under which its caller may send the query's vector."""
LONGEST = 16_384
"""Characters of a query: an encoder splits all of it into words before it takes the first ones."""
NOTHING_FOUND = "No passage matches."

log = structlog.get_logger(__name__)


OF_INDEX = ("corpus", "encoder", "kind", "effort", "threads", "http", "http_insecure")
OF_ENDPOINT = ("requests", "timeout_s")
"""Options that need an index, or an endpoint."""


class SearchOptions(BaseModel):
    """What an operator may set about `search`."""

    model_config = STRICT

    index: Path | None = Field(
        default=None, description="folder that `toolsvc index build` makes; or an endpoint"
    )
    endpoint: str = Field(
        default="", description="URL of a running retriever: Search-R1's http://HOST:PORT/retrieve"
    )
    corpus: Path | None = Field(default=None, description="where the corpus is, if it was moved")
    encoder: Path | None = Field(default=None, description="where the encoder is, if it was moved")
    kind: Retriever | None = Field(
        default=None, description="bm25, dense or hybrid; default: all that the index holds"
    )
    topk: int = Field(default=3, ge=1, le=MOST_HITS, description="passages of an observation")
    effort: int | None = Field(
        default=None, ge=1, description="efSearch of hnsw, nprobe of ivf: more finds more, slower"
    )
    batch: int = Field(default=BATCH, ge=1, description="queries answered together, at most")
    queue: int = Field(default=QUEUE, ge=1, description="queries that wait; more are refused")
    threads: int = Field(default=1, ge=1, description="threads of a search by vectors")
    window_ms: float = Field(
        default=0.0, ge=0, le=1000, description="time that an idle service waits for more queries"
    )
    titles: Literal["bare", "quoted"] = Field(
        default="bare", description="quoted: with the quotation marks that the corpus has"
    )
    requests: int = Field(default=4, ge=1, description="requests to the endpoint at a time")
    timeout_s: float = Field(
        default=20.0,
        gt=0,
        description="longest time for an answer of the endpoint, all tries included, in seconds",
    )
    http: str = Field(default="", description="host:port for Search-R1's POST /retrieve")
    http_insecure: bool = Field(default=False, description="serve it off loopback without a token")

    @model_validator(mode="after")
    def _one_retriever(self) -> Self:
        if (self.index is None) == (not self.endpoint):
            raise ValueError(
                "set search.index to a folder of `toolsvc index build`, or search.endpoint to a URL"
            )
        if self.endpoint and (fault := url_fault(self.endpoint)):
            raise ValueError(f"search.endpoint: {fault}")
        needs, other = ("index", "endpoint") if self.endpoint else ("endpoint", "index")
        for key in OF_INDEX if self.endpoint else OF_ENDPOINT:
            if key in self.model_fields_set:
                raise ValueError(
                    f"search.{key} needs search.{needs}: leave it out beside search.{other}"
                )
        return self


class SearchTool(Tool):
    Config = SearchOptions
    executor = OutOfProcess
    name = "search"
    description = "Searches a corpus and returns the passages that match the query best."
    usage = "<search> query </search>\n" + description
    format = TagFormat(open="<search>", close="</search>", argument="query")
    parallel_calls = True
    keep = "head"  # the best passages come first
    run_limit = 30.0

    def __init__(self, config: SearchOptions) -> None:
        super().__init__(config)
        self._stack = AsyncExitStack()
        self._searcher = _searcher(config)

    async def start(self) -> None:
        options = self.config
        await self._stack.enter_async_context(self._searcher)
        if isinstance(self._searcher, RemoteSearcher):
            log.info("retriever answers", endpoint=options.endpoint)
            return
        index = self._searcher.index
        log.info("index loaded", passages=len(index), kind=str(index.retriever))
        if options.http:
            server = RetrieveServer(
                self._searcher,
                options.http,
                topk=options.topk,
                insecure=options.http_insecure,
            )
            await self._stack.enter_async_context(server)
            log.info("serving POST /retrieve", address=options.http, port=server.port)

    async def stop(self) -> None:
        await self._stack.aclose()

    def figures(self) -> Mapping[str, float]:
        return self._searcher.figures()

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        if len(arguments["query"]) > LONGEST:
            raise InvalidAction(f"the query has more than {LONGEST} characters")

    async def run(self, state: Any, call: Call, cancellation: Cancellation) -> Result:
        text = call.arguments["query"].strip()
        if not text:
            return invalid("the query is empty: write words between <search> and </search>")
        try:
            vector = call.metadata.get(VECTOR)
            query = Query(text=text, vector=None if vector is None else decode_vector(vector))
            ticket = self._searcher.submit(query, self.config.topk)
        except NoVector:
            raise _wrong(call, f"this index has no encoder: send metadata.{VECTOR}") from None
        except WrongVector as error:
            raise _wrong(call, f"metadata.{VECTOR}: {error}") from error
        except QueueFull:
            raise _overloaded(call) from None
        cancellation.on_request(ticket.answer.cancel)
        limit = asyncio.timeout(call.run_limit)  # of its place in line, then of the search
        ticket.on_begin = partial(_begin_anew, limit, call.run_limit)
        try:
            async with limit:
                return as_result(await ticket.answer, quoted=self.config.titles == "quoted")
        except TimeoutError:
            if not ticket.begun:
                raise _overloaded(call) from None
            if self.config.endpoint:
                raise _down(call, f"no answer in {call.run_limit:g} s") from None
            return failure(
                ToolErrorKind.TIMEOUT, f"{self.name} was stopped after {call.run_limit:g} s"
            )
        except asyncio.CancelledError:
            if not cancellation.requested:
                raise
            return failure(ToolErrorKind.CANCELLED, f"{self.name} was cancelled")
        except BatchFailed as error:
            log.exception("search failed")
            raise _down(call, str(error)) from error


def _searcher(config: SearchOptions) -> Searcher | RemoteSearcher:
    if config.index is None:
        return RemoteSearcher(
            RemoteSettings(
                url=config.endpoint,
                batch=config.batch,
                queue=config.queue,
                at_once=config.requests,
                seconds=config.timeout_s,
                window_s=config.window_ms / 1000,
            )
        )
    return Searcher(
        Sources(
            folder=config.index,
            corpus=config.corpus,
            encoder=config.encoder,
            retriever=config.kind,
            effort=config.effort,
            threads=config.threads,
        ),
        batch=config.batch,
        queue=config.queue,
        window_s=config.window_ms / 1000,
    )


def _down(call: Call, why: str) -> Refused:
    return Refused(
        Reason.BACKEND_DOWN,
        f"the search failed: {why}",
        subject=call.call_id,
        retry_after=RETRY_SECONDS,
    )


def _begin_anew(limit: asyncio.Timeout, seconds: float) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + seconds)


def as_result(answer: SearchAnswer, *, quoted: bool) -> Result:
    """The observation, and what the batch was like."""
    return Result(
        observation=(Text(text=as_text(answer.hits, quoted=quoted)),),
        metrics={
            "hits": float(len(answer.hits)),
            "batch": float(answer.batch),
            "encode_seconds": answer.encode_seconds,
        },
    )


def as_text(hits: Iterable[Hit], *, quoted: bool) -> str:
    """`Doc 1(Title: ...) text`, best first. `quoted`: titles as they stand in the corpus."""
    lines = [
        f"Doc {number}(Title: {_title(hit, quoted)}) {hit.passage.text}"
        for number, hit in enumerate(hits, start=1)
    ]
    return "\n".join(lines) or NOTHING_FOUND


def _title(hit: Hit, quoted: bool) -> str:
    return hit.passage.contents.partition("\n")[0] if quoted else hit.passage.title


def _overloaded(call: Call) -> Refused:
    return Refused(
        Reason.QUEUE_LIMIT,
        f"call {call.call_id} found no place in the queries being answered",
        subject=call.call_id,
        retry_after=RETRY_SECONDS,
        fix="send fewer calls at once, or raise search.queue",
    )


def _wrong(call: Call, message: str) -> Refused:
    return Refused(Reason.INVALID_REQUEST, message, subject=call.call_id)
