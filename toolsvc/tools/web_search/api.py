"""The client of a search API as Serper speaks it: `POST {base}/search` with `X-API-KEY`.

    {"q": "...", "num": 10, "gl": "us", "hl": "en"}
    {"organic": [{"title": "...", "link": "...", "snippet": "..."}, ...],
     "answerBox": {...}, "knowledgeGraph": {...}}

Invariants
- A query is bounded: a time for each try, a number of tries, a budget of queries, a place among
  `_AT_ONCE`. Time in line for a place is no part of a try.
- An answer in the cache costs nothing; equal queries in flight are sent once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http import HTTPStatus

import aiohttp
from pydantic import BaseModel, Field, ValidationError
from yarl import URL

from toolsvc.backends.budget import Budget
from toolsvc.backends.cache import Cache, cache_key
from toolsvc.backends.single_flight import SingleFlight
from toolsvc.plugin.results import ToolFailed
from toolsvc.plugin.waiting import waiting
from toolsvc.tools.web_search.fetch import read_body
from toolsvc.tools.web_search.types import SearchDown, SearchRefused, WebHit

TRY_SECONDS = 10.0
PAUSES = (0.5, 2.0)
"""Seconds before the second and the third try."""
_ANSWER_BYTES = 4 << 20
_AT_ONCE = 64


class _Organic(BaseModel):
    title: str = ""
    link: str = ""
    snippet: str = ""


class _AnswerBox(_Organic):
    answer: str = ""


class _KnowledgeGraph(BaseModel):
    title: str = ""
    description: str = ""
    description_link: str = Field(default="", alias="descriptionLink")


class _Answer(BaseModel):
    """What is used of it; other keys are left alone."""

    organic: list[_Organic]
    answer_box: _AnswerBox | None = Field(default=None, alias="answerBox")
    knowledge_graph: _KnowledgeGraph | None = Field(default=None, alias="knowledgeGraph")


class SearchApi:
    """Must be made in a running loop, and closed."""

    def __init__(
        self,
        base_url: str,
        key: str,
        *,
        country: str,
        language: str,
        budget: Budget,
        cache: Cache | None,
    ) -> None:
        self._url = URL(base_url.rstrip("/") + "/search")
        self._where = {"gl": country, "hl": language}
        self._budget = budget
        self._cache = cache
        self._flights: SingleFlight[bytes] = SingleFlight()
        self._session = aiohttp.ClientSession(
            headers={"X-API-KEY": key} if key else {},
            timeout=aiohttp.ClientTimeout(total=TRY_SECONDS),
            connector=aiohttp.TCPConnector(limit=0),  # a line there would eat the time of a try
        )
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def close(self) -> None:
        await self._session.close()

    async def search(self, query: str, most: int) -> list[WebHit]:
        """Best first, as the API gives them. Raises SearchDown, SearchRefused, BudgetSpent, and
        ToolFailed for a query that the API does not take."""
        body: dict[str, str | int] = {"q": query, "num": most}
        body.update({name: value for name, value in self._where.items() if value})
        key = cache_key("web_search", str(self._url), body)
        with waiting(f"the search API {self._url}"):
            answer = await self._flights.do(key, lambda: self._find(key, body))
        return list(_hits(_parsed(answer)))

    async def _find(self, key: str, body: dict[str, str | int]) -> bytes:
        stored = None if self._cache is None else await self._cache.get(key)
        if stored is not None:
            return stored
        answer = await self._send(body)
        _parsed(answer)  # Nothing is kept that could not be read.
        if self._cache is not None:
            await self._cache.put(key, answer)
        return answer

    async def _send(self, body: dict[str, str | int]) -> bytes:
        self._budget.reserve(0)
        for pause in PAUSES:
            try:
                return await self._try(body)
            except SearchDown:
                await asyncio.sleep(pause)
        return await self._try(body)

    async def _try(self, body: dict[str, str | int]) -> bytes:
        try:
            async with self._places, self._session.post(self._url, json=body) as response:
                answer = await read_body(response, _ANSWER_BYTES)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SearchDown(f"{self._url}: {error or type(error).__name__}") from error
        status = response.status
        if status == HTTPStatus.OK:
            return answer
        why = f"{self._url} answered {status}: {answer[:200].decode(errors='replace')}"
        if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise SearchDown(why)
        if status == HTTPStatus.BAD_REQUEST and b"query" in answer.lower():
            raise ToolFailed("the search API does not take this query: write another one")
        raise SearchRefused(why)


def _parsed(answer: bytes) -> _Answer:
    try:
        return _Answer.model_validate_json(answer)
    except ValidationError as error:
        raise SearchRefused(f"the search API gave no list `organic`: {answer[:200]!r}") from error


def _hits(answer: _Answer) -> Iterator[WebHit]:
    box, graph = answer.answer_box, answer.knowledge_graph
    if box is not None and (box.answer or box.snippet):
        said = " ".join(filter(None, (box.answer, box.snippet)))
        yield WebHit(title=box.title or "Answer", url=box.link, snippet=said)
    if graph is not None and graph.description:
        yield WebHit(title=graph.title, url=graph.description_link, snippet=graph.description)
    for organic in answer.organic:
        yield WebHit(title=organic.title, url=organic.link, snippet=organic.snippet)
