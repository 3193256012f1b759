"""`POST /retrieve`, as Search-R1's retrieval server speaks it, on the same queue as the tool.

    {"queries": ["..."], "topk": 3, "return_scores": true}
    {"result": [[{"document": {"id": "...", "contents": "..."}, "score": 1.5}, ...], ...]}

Without `return_scores` the items are the documents themselves. One key more than there:
`vectors`, one a query, as `vectors.encode_vector` writes them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from pydantic import BaseModel, Field, ValidationError

from toolsvc.backends.search.batcher import BatchFailed, QueueFull
from toolsvc.backends.search.errors import NoVector, WrongVector
from toolsvc.backends.search.searcher import MOST_HITS, SearchAnswer, Searcher
from toolsvc.backends.search.types import Query
from toolsvc.backends.search.vectors import decode_vector
from toolsvc.errors import RETRY_SECONDS
from toolwright.rpc.http_server import HttpServer, body_of, refused

MOST_QUERIES = 1024
"""Most queries of one request."""
_BODY_BYTES = 16 << 20


class RetrieveRequest(BaseModel):
    """What a client sends; keys that are not known here are left alone, as there."""

    queries: list[str] = Field(min_length=1, max_length=MOST_QUERIES)
    topk: int | None = Field(default=None, ge=1, le=MOST_HITS)
    return_scores: bool = False
    vectors: list[str] | None = None


class RetrieveServer(HttpServer):
    """Async context manager."""

    def __init__(self, searcher: Searcher, listen: str, *, topk: int, insecure: bool) -> None:
        """`topk`: where a request names none. ListenError for an address that needs a token."""
        self._searcher = searcher
        self._topk = topk
        app = web.Application(client_max_size=_BODY_BYTES)
        app.router.add_post("/retrieve", self._retrieve)
        super().__init__(
            app,
            listen,
            option="--set search.http",
            insecure=insecure,
            insecure_option="--set search.http_insecure=true",
            # Shared between the workers of one service, each with the index of its own.
            reuse_port=True,
        )

    async def _retrieve(self, request: web.Request) -> web.Response:
        try:
            wanted = RetrieveRequest.model_validate_json(await body_of(request))
            queries = _queries(wanted)
            answers = await self._answers(queries, wanted.topk or self._topk)
        except (ValidationError, WrongVector) as error:
            return refused(422, str(error))
        except NoVector:
            return refused(422, "this index has no encoder: send `vectors`, one a query")
        except QueueFull:
            return refused(503, "too many queries are waiting", retry_after=RETRY_SECONDS)
        except BatchFailed as error:
            return refused(500, str(error))
        scores = wanted.return_scores
        return web.json_response({"result": [_items(answer, scores) for answer in answers]})

    async def _answers(self, queries: list[Query], k: int) -> list[SearchAnswer]:
        if self._searcher.room < len(queries):
            raise QueueFull  # All or none: no client can use half of an answer.
        for query in queries:
            self._searcher.index.check(query)
        tickets = [self._searcher.submit(query, k) for query in queries]
        try:
            return await asyncio.gather(*(ticket.answer for ticket in tickets))
        finally:
            for ticket in tickets:
                ticket.answer.cancel()


def _queries(wanted: RetrieveRequest) -> list[Query]:
    if wanted.vectors is None:
        return [Query(text=text) for text in wanted.queries]
    if len(wanted.vectors) != len(wanted.queries):
        raise WrongVector(f"{len(wanted.queries)} queries and {len(wanted.vectors)} vectors")
    return [
        Query(text=text, vector=decode_vector(vector))
        for text, vector in zip(wanted.queries, wanted.vectors, strict=True)
    ]


def _items(answer: SearchAnswer, with_scores: bool) -> list[dict[str, Any]]:
    documents = [{"id": hit.passage.id, "contents": hit.passage.contents} for hit in answer.hits]
    if not with_scores:
        return list(documents)
    return [
        {"document": document, "score": hit.score}
        for document, hit in zip(documents, answer.hits, strict=True)
    ]
