"""A retriever behind Search-R1's `POST /retrieve`, asked by many calls at once.

Queries that arrive while requests are answered go into one request. A request that fails for the
network's or the server's reasons is sent again, with pauses that double, until its time is over.
Whatever keeps an answer from coming is BatchFailed: a tool refuses the call, and the policy reads
nothing of it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Self

import aiohttp
import structlog
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from toolsvc.backends.search.batcher import Batcher, Ticket
from toolsvc.backends.search.searcher import Question, SearchAnswer
from toolsvc.backends.search.types import Hit, Passage, Query
from toolsvc.errors import StartError
from toolwright.process.backoff import Backoff
from toolwright.rpc.proxies import proxy_for

MOST_BYTES = 64 << 20
"""Largest answer to one request."""
AGAIN = (408, 425, 429)
"""Statuses of a request that may succeed later, beside all from 500 on."""
BACKOFF = Backoff(0.1, 5.0)
SHOWN = 300
"""Characters of a refusal that a message quotes."""

log = structlog.get_logger(__name__)


class RetrieverRefused(Exception):
    """The server refuses the request now and later, or answers in another form."""


class RetrieverDown(Exception):
    """The server did not answer in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings:
    """url: of `/retrieve`. batch: queries of one request. queue: queries that wait. at_once:
    requests in flight. seconds: of a request with all its tries. window_s: longest time that an
    idle batcher waits for more queries, in seconds."""

    url: str
    batch: int
    queue: int
    at_once: int
    seconds: float
    window_s: float = 0.0


class _Document(BaseModel):
    """`contents`: the title in quotation marks, a newline, the text; or both apart."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: str = ""
    contents: str = ""
    title: str = ""
    text: str = ""

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
        self._session = await self._stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=settings.at_once))
        )
        try:
            await self._answers([Question(Query(text="start"), 1)])
        except (RetrieverDown, RetrieverRefused) as error:
            await self._stack.aclose()
            raise StartError(f"{error}: start the retriever, or correct search.endpoint") from error
        batcher: Batcher[Question, SearchAnswer] = Batcher(
            self._answers,
            most=settings.batch,
            queue=settings.queue,
            at_once=settings.at_once,
            window_s=settings.window_s,
        )
        self._batcher = await self._stack.enter_async_context(batcher)
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

    async def _answers(self, questions: Sequence[Question]) -> list[SearchAnswer]:
        by_k: defaultdict[int, list[int]] = defaultdict(list)
        for number, question in enumerate(questions):
            by_k[question.k].append(number)
        found: dict[int, list[Hit]] = {}
        for k, numbers in by_k.items():
            texts = [questions[number].query.text for number in numbers]
            found |= zip(numbers, await self._ask(texts, k), strict=True)
        return [
            SearchAnswer(found[number][: question.k], len(questions), 0.0)
            for number, question in enumerate(questions)
        ]

    async def _ask(self, texts: list[str], k: int) -> list[list[Hit]]:
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
                said = content[:SHOWN].decode("utf-8", "replace")
                kind = RetrieverDown if _may_succeed(answer.status) else RetrieverRefused
                raise kind(f"{url} answered {answer.status}: {said}")
        try:
            rows = _ANSWER.validate_json(content).result
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


def _may_succeed(status: int) -> bool:
    return status >= 500 or status in AGAIN


def _hit(item: _Scored | _Document) -> Hit:
    return item.hit() if isinstance(item, _Scored) else Hit(item.passage(), 0.0)
