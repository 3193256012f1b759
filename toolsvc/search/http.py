"""`POST /retrieve`, as Search-R1's retrieval server speaks it, on the same queue as the tool.

    {"queries": ["..."], "topk": 3, "return_scores": true}
    {"result": [[{"document": {"id": "...", "contents": "..."}, "score": 1.5}, ...], ...]}

Without `return_scores` the items are the documents themselves. One key more than there:
`vectors`, one a query, as `vectors.encode_vector` writes them.

Loopback or a bearer token, as everywhere.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import Any, Self

from aiohttp import web
from pydantic import BaseModel, Field, ValidationError

from toolsvc.errors import StartError
from toolsvc.search.batcher import BatchFailed, QueueFull
from toolsvc.search.errors import NoVector, WrongVector
from toolsvc.search.searcher import MOST_HITS, Answer, Searcher
from toolsvc.search.types import Query
from toolsvc.search.vectors import decode_vector
from toolwright.rpc.options import TOKEN_VARIABLE, is_local

MOST_QUERIES = 1024
"""Of one request."""
_BODY_BYTES = 16 << 20
_RETRY_SECONDS = 1


class RetrieveRequest(BaseModel):
    """What a client sends; keys that are not known here are left alone, as there."""

    queries: list[str] = Field(min_length=1, max_length=MOST_QUERIES)
    topk: int | None = Field(default=None, ge=1, le=MOST_HITS)
    return_scores: bool = False
    vectors: list[str] | None = None


class RetrieveServer:
    """Async context manager."""

    def __init__(
        self, searcher: Searcher, listen: str, *, topk: int, token: str, insecure: bool
    ) -> None:
        """`topk`: where a request names none. StartError for an address that needs a token."""
        host, colon, port = listen.rpartition(":")
        if not colon or not port.isdigit():
            raise StartError(f"search.http={listen}: write it as host:port")
        if not is_local(listen) and not token and not insecure:
            raise StartError(
                f"search.http={listen} is reachable from other machines: set a bearer token "
                f"({TOKEN_VARIABLE}), listen on 127.0.0.1, or say --set search.http_insecure=true"
            )
        self._searcher = searcher
        self._topk = topk
        self._expected = f"Bearer {token}".encode() if token else None
        self._host = host.strip("[]")
        self._port = int(port)
        app = web.Application(client_max_size=_BODY_BYTES)
        app.router.add_post("/retrieve", self._retrieve)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        # Shared between the workers of one service, each with the index of its own.
        site = web.TCPSite(self._runner, self._host, self._port, reuse_port=True)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise StartError(
                f"cannot listen on search.http={self._host}:{self._port}: "
                f"{error.strerror or error}; stop what holds it, or choose another"
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The one that was bound, for port 0."""
        return int(self._runner.addresses[0][1])

    async def _retrieve(self, request: web.Request) -> web.Response:
        if self._expected is not None and not hmac.compare_digest(
            request.headers.get("Authorization", "").encode(), self._expected
        ):
            return _refused(401, "bearer token missing or wrong")
        try:
            wanted = RetrieveRequest.model_validate_json(await request.read())
            queries = _queries(wanted)
            answers = await self._answers(queries, wanted.topk or self._topk)
        except (ValidationError, WrongVector) as error:
            return _refused(422, str(error))
        except NoVector:
            return _refused(422, "this index has no encoder: send `vectors`, one a query")
        except QueueFull:
            response = _refused(503, "too many queries are waiting")
            response.headers["Retry-After"] = str(_RETRY_SECONDS)
            return response
        except BatchFailed as error:
            return _refused(500, str(error))
        scores = wanted.return_scores
        return web.json_response({"result": [_items(answer, scores) for answer in answers]})

    async def _answers(self, queries: list[Query], k: int) -> list[Answer]:
        if self._searcher.room < len(queries):
            raise QueueFull  # All or none: half of a request is no use to anybody.
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


def _items(answer: Answer, with_scores: bool) -> list[dict[str, Any]]:
    documents = [{"id": hit.passage.id, "contents": hit.passage.contents} for hit in answer.hits]
    if not with_scores:
        return list(documents)
    return [
        {"document": document, "score": hit.score}
        for document, hit in zip(documents, answer.hits, strict=True)
    ]


def _refused(status: int, why: str) -> web.Response:
    return web.json_response({"detail": why}, status=status)
