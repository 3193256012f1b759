"""Client of a retriever with Search-R1's `POST /retrieve`, for many calls at once.

A query is sent at once while fewer than `at_once` requests are in flight. Otherwise it waits, and
waiting queries go into one request. A request that fails because of the network or the server is
repeated with doubling pauses, until its time is over. If the server refuses a request of several
queries, or fails on it, its halves are asked: one bad query fails its own call only. Any failure
becomes BatchFailed: the tool refuses the call, and the policy reads nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Self

import aiohttp
import structlog
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator

from toolsvc.backends.search.batcher import Batcher, Ticket
from toolsvc.backends.search.searcher import Question, SearchAnswer
from toolsvc.backends.search.types import Hit, Passage, Query
from toolsvc.errors import StartError
from toolwright.process.backoff import Backoff
from toolwright.rpc.proxies import proxy_for

MOST_BYTES = 64 << 20
"""Largest answer to one request."""
BUSY = (408, 425, 429, 503)
"""Statuses of a server that has no room now, whatever the queries are."""
BACKOFF = Backoff(0.1, 5.0)
QUOTED = 300
"""Longest quotation of a refusal, in characters."""

log = structlog.get_logger(__name__)


class RetrieverRefused(Exception):
    """The server refuses the request now and later, or answers in another form."""


class RetrieverDown(Exception):
    """The server did not answer in time."""


class RetrieverFailed(RetrieverDown):
    """The server answered with an error that may be the queries' fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings:
    """Address and limits of a retriever."""

    url: str
    """Address of `/retrieve`."""
    batch: int
    """Largest number of queries in a request."""
    queue: int
    """Largest number of waiting queries."""
    at_once: int
    """Largest number of requests in flight."""
    seconds: float
    """Longest time of a request, all tries included."""
    window_s: float = 0.0
    """Longest time that an idle client waits for more queries, in seconds."""


class _Document(BaseModel):
    """`contents` is the title in quotation marks, a newline and the text. A server may send `title`
    and `text` instead."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: str = ""
    contents: str = ""
    title: str = ""
    text: str = ""

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        if not (self.contents or self.text):
            raise ValueError("a document has contents, or title and text")
        return self

    def passage(self) -> Passage:
        contents = self.contents or f'"{self.title}"\n{self.text}'
        return Passage(id=self.id, contents=contents)


class _Scored(BaseModel):
    document: _Document
    score: float = 0.0

    def hit(self) -> Hit:
        return Hit(self.document.passage(), self.score)


class _Answer(BaseModel):
    result: list[list[_Scored | _Document]]


_ANSWER = TypeAdapter(_Answer)


class RemoteSearcher:
    """Async context manager with the interface of `Searcher`. Entering it asks one query.

    Raises StartError if the server does not answer, or answers in another form.
    """

    def __init__(self, settings: RemoteSettings) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()
        self._retries = 0

    async def __aenter__(self) -> Self:
        settings = self._settings
        async with AsyncExitStack() as stack:
            self._session = await stack.enter_async_context(
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=settings.at_once))
            )
            try:
                await self._hits(["start"], 1)
            except (RetrieverDown, RetrieverRefused) as error:
                fix = "start the retriever, or correct search.endpoint"
                raise StartError(f"{error}: {fix}") from error
            batcher: Batcher[Question, SearchAnswer] = Batcher(
                self._answers,
                most=settings.batch,
                queue=settings.queue,
                at_once=settings.at_once,
                window_s=settings.window_s,
            )
            self._batcher = await stack.enter_async_context(batcher)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def figures(self) -> Mapping[str, float]:
        """Figures of the queue, for the metrics page."""
        return {**self._batcher.figures(), "retries_total": self._retries}

    def submit(self, query: Query, k: int) -> Ticket[Question, SearchAnswer]:
        """A place in the queue. Raises QueueFull. A vector is not sent: the server has its own
        encoder."""
        return self._batcher.submit(Question(query, k))

    async def _answers(self, questions: Sequence[Question]) -> list[SearchAnswer | Exception]:
        most = max(question.k for question in questions)
        found = await self._each([question.query.text for question in questions], most)
        return [
            hits
            if isinstance(hits, Exception)
            else SearchAnswer(hits[: question.k], len(questions), 0.0)
            for question, hits in zip(questions, found, strict=True)
        ]

    async def _each(self, texts: list[str], k: int) -> list[list[Hit] | Exception]:
        """Hits of each query, or its failure."""
        try:
            return list(await self._hits(texts, k))
        except (RetrieverFailed, RetrieverRefused) as error:
            if len(texts) == 1:
                return [error]
        except RetrieverDown as error:
            return [error] * len(texts)
        half = len(texts) // 2
        return [*await self._each(texts[:half], k), *await self._each(texts[half:], k)]

    async def _hits(self, texts: list[str], k: int) -> list[list[Hit]]:
        """Hits of each query. Raises RetrieverDown or RetrieverRefused."""
        failures: list[str] = []
        try:
            async with asyncio.timeout(self._settings.seconds):
                while True:
                    try:
                        return await self._ask_once(texts, k)
                    except (aiohttp.ClientError, OSError, RetrieverDown) as error:
                        failures.append(str(error) or type(error).__name__)
                        self._retries += 1
                        log.warning("retriever failed", url=self._settings.url, why=failures[-1])
                        if isinstance(error, RetrieverFailed) and len(texts) > 1:
                            raise
                    await asyncio.sleep(BACKOFF.pause(len(failures) - 1))
        except TimeoutError:
            why = failures[-1] if failures else "no answer"
            raise RetrieverDown(
                f"{self._settings.url} did not answer in {self._settings.seconds:g} s: {why}"
            ) from None

    async def _ask_once(self, texts: list[str], k: int) -> list[list[Hit]]:
        url = self._settings.url
        body = {"queries": texts, "topk": k, "return_scores": True}
        async with self._session.post(
            url, json=body, proxy=proxy_for(url), timeout=aiohttp.ClientTimeout(total=None)
        ) as answer:
            content = await _bounded(answer.content)
            if answer.status != 200:
                said = content[:QUOTED].decode("utf-8", "replace")
                raise _error_of(answer.status)(f"{url} answered {answer.status}: {said}")
        try:
            rows = (await asyncio.to_thread(_ANSWER.validate_json, content)).result
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise RetrieverRefused(
                f"{url} is no retriever of Search-R1's API: {where}: {first['msg']}"
            ) from error
        if len(rows) != len(texts):
            raise RetrieverRefused(f"{url} answered {len(rows)} of {len(texts)} queries")
        return [[_hit(item) for item in row] for row in rows]


async def _bounded(stream: aiohttp.StreamReader) -> bytes:
    """The whole body. Raises RetrieverRefused above MOST_BYTES."""
    content = bytearray()
    async for piece in stream.iter_any():
        content += piece
        if len(content) > MOST_BYTES:
            raise RetrieverRefused(f"an answer has more than {MOST_BYTES} bytes: lower topk")
    return bytes(content)


def _error_of(status: int) -> type[Exception]:
    if status in BUSY:
        return RetrieverDown
    return RetrieverFailed if status >= 500 else RetrieverRefused


def _hit(item: _Scored | _Document) -> Hit:
    return item.hit() if isinstance(item, _Scored) else Hit(item.passage(), 0.0)
