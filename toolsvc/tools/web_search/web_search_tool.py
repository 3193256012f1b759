"""`web_search`: the results of a search API, and, where the operator wants it, what stands on the
pages behind them.

Owns how a query is read and how results become an observation. The recipe writes what goes around
it (`<result>`). Of an action, the block that ends last counts: `<search> query </search>`, or
`<visit> https://... </visit>`.

If a page cannot be read, the policy reads why. If the search API or a summariser does not answer,
the call is refused and the policy reads nothing. A call waits for all of them (`plugin.waiting`)
and hardly runs itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, TypeVar

from pydantic import Field

from toolsvc.backends.budget import Budget
from toolsvc.backends.cache import Cache, CacheOptions
from toolsvc.backends.chat_model import EndpointOptions
from toolsvc.confined.errors import CannotStart
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.plugin.actions import RAW, InvalidAction, last_block, last_ends
from toolsvc.plugin.tool import Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.tools.web_search.api import SearchApi
from toolsvc.tools.web_search.pages import Pages
from toolsvc.tools.web_search.results import as_text, distinct, page_as_text
from toolsvc.tools.web_search.types import PageUnreadable, WebHit
from toolsvc.types import ActionFormat, Call, RawFormat, Result, SessionInfo, TagFormat

SEARCH = ("<search>", "</search>")
VISIT = ("<visit>", "</visit>")
LONGEST = 2000
"""Characters of a query or an address; servers refuse longer ones."""


class WebRequest(NamedTuple):
    text: str
    visit: bool
    """Whether the text is the address of a page, not a query."""


def find_request(action: str) -> WebRequest:
    """Request of the action. Raises InvalidAction if it has none."""
    ends = last_ends(action, (SEARCH[1], VISIT[1]))
    if not ends:
        raise InvalidAction(
            "the action has neither <search> ... </search> nor <visit> ... </visit>"
        )
    closing = max(ends, key=ends.__getitem__)
    opening, closing = VISIT if closing == VISIT[1] else SEARCH
    return request(last_block(action, opening, closing), visit=opening == VISIT[0])


def request(body: str, *, visit: bool) -> WebRequest:
    """Request of the text between two marks. Raises InvalidAction for an empty or too long text."""
    opening, closing = VISIT if visit else SEARCH
    text = " ".join(body.split())
    if not text:
        raise InvalidAction(f"nothing between {opening} and {closing}")
    if len(text) > LONGEST:
        raise InvalidAction(f"more than {LONGEST} characters between {opening} and {closing}")
    return WebRequest(text, visit)


MOST_HITS = 20
SESSION_PAGES = "web_search_pages"
"""Key of a session's metadata: `pages` of its searches, at most `session_pages`."""


class WebSearchOptions(CacheOptions):
    """Options of `web_search`."""

    base_url: str = Field(
        default="https://google.serper.dev", description="the API; POST BASE_URL/search is asked"
    )
    key_variable: str = Field(
        default="SERPER_API_KEY",
        description="environment variable that holds the API key; none: no key",
    )
    country: str = Field(default="", description="two letters, as the API's gl")
    language: str = Field(default="", description="as the API's hl")
    budget_requests: int | None = Field(
        default=None, ge=0, description="queries to the API in this service's life"
    )
    topk: int = Field(default=5, ge=1, le=MOST_HITS, description="results of an observation")
    snippet_chars: int = Field(default=500, ge=1, description="characters of one snippet")
    visit: bool = Field(default=False, description="lets the policy open pages: <visit> URL")
    pages: int = Field(
        default=0, ge=0, le=MOST_HITS, description="results whose pages are read with each search"
    )
    session_pages: int = Field(
        default=0,
        ge=0,
        le=MOST_HITS,
        description=f"largest {SESSION_PAGES} that a session's metadata may ask for",
    )
    page_chars: int = Field(default=4000, ge=1, description="characters shown of one page")
    allow_hosts: tuple[str, ...] = Field(
        default=(), description="hosts (or host:port) that pages may be on though not public"
    )
    extractors: int = Field(default=1, ge=1, description="pages that are read at once")
    summariser: EndpointOptions | None = Field(
        default=None, description="a model that sums up pages for the query"
    )


class WebSearchTool(Tool):
    Config = WebSearchOptions
    name = "web_search"
    description = "Searches the web and returns the results that match the query best."
    parallel_calls = True
    run_limit = 60.0

    def __init__(self, config: WebSearchOptions, sandbox: SandboxConfig | None = None) -> None:
        super().__init__(config)
        self._sandbox = sandbox or SandboxConfig()
        self._stack = AsyncExitStack()
        self._key = ""
        if config.key_variable:
            self._key = os.environ.get(config.key_variable, "")
            if not self._key:
                raise StartError(
                    f"web_search needs the API key of {config.base_url}: set the environment "
                    f"variable {config.key_variable}"
                )
        self._budget = Budget(requests=config.budget_requests, tokens=None)
        self._cache: Cache | None = None
        self._api: SearchApi | None = None
        self._pages: Pages | None = None
        self.format: ActionFormat = TagFormat(open=SEARCH[0], close=SEARCH[1], argument="query")
        self.usage = f"<search> query </search>\n{self.description}"
        if config.visit:
            self.format, self.stop_strings = RawFormat(), (SEARCH[1], VISIT[1])
            self.description += " Also opens a page and returns its text."
            self.usage = (
                f"<search> query </search> or <visit> https://... </visit>\n{self.description}"
            )

    async def start(self) -> None:
        options, enter = self.config, self._stack.enter_async_context
        self._cache = await enter(options.opened_cache())
        self._api = SearchApi(
            options.base_url,
            self._key,
            country=options.country,
            language=options.language,
            budget=self._budget,
            cache=self._cache,
        )
        self._stack.push_async_callback(self._api.close)
        if options.visit or options.pages or options.session_pages:
            pages = Pages(
                self._cache,
                allowed_hosts=options.allow_hosts,
                processes=options.extractors,
                summariser=options.summariser,
                sandbox=self._sandbox,
            )
            try:
                self._pages = await enter(pages)
            except CannotStart as error:
                raise StartError(f"web_search cannot read pages here: {error}") from error

    async def stop(self) -> None:
        await self._stack.aclose()

    async def open(self, session: SessionInfo) -> int:
        """Number of pages that each search of the session reads. Raises Refused for a wrong one."""
        asked = session.metadata.get(SESSION_PAGES)
        if asked is None:
            return int(self.config.pages)
        most = self.config.session_pages
        whole = isinstance(asked, int | float) and not isinstance(asked, bool) and asked % 1 == 0
        if not whole or not 0 <= asked <= most:
            raise Refused(
                Reason.INVALID_REQUEST,
                f"{SESSION_PAGES} = {asked!r} of the session's metadata is not a whole number from "
                f"0 to {most}; raise web_search.session_pages",
            )
        return int(asked)

    def make_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = super().make_arguments(arguments)
        wanted = (
            find_request(found[RAW]) if self.config.visit else request(found["query"], visit=False)
        )
        return wanted._asdict()

    def figures(self) -> Mapping[str, float]:
        found: dict[str, float] = {"searches_total": self._budget.requests}
        for part in (self._cache, self._pages):
            if part is not None:
                found.update(part.figures())
        return found

    async def call(self, pages: int, call: Call) -> Result:
        text, caller = call.arguments["text"], call.session.session_id
        if call.arguments["visit"]:
            return await self._visit(text, caller)
        return await self._search(text, caller, pages)

    async def _search(self, query: str, caller: str, pages: int) -> Result:
        api, options = _started(self._api), self.config
        # More than are shown: some will be of one page.
        hits = distinct(await api.search(query, 2 * options.topk), options.topk)
        gists = await self._gists(query, hits[:pages], caller)
        gists += [""] * (len(hits) - len(gists))
        return Result.of(
            as_text(hits, gists, options.snippet_chars),
            metrics={"hits": len(hits), "pages": sum(map(bool, gists))},
        )

    async def _visit(self, url: str, caller: str) -> Result:
        page = await _started(self._pages).read(url, caller)
        return Result.of(page_as_text(page, self.config.page_chars), metrics={"pages": 1})

    async def _gists(self, query: str, hits: list[WebHit], caller: str) -> list[str]:
        """Text of each hit's page about the query."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._gist(query, hit, caller)) for hit in hits]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        return [task.result() for task in tasks]

    async def _gist(self, query: str, hit: WebHit, caller: str) -> str:
        """Text of one hit's page; "" if it cannot be read, which is not the search's fault."""
        if not hit.url:
            return ""
        try:
            chars = self.config.page_chars
            return await _started(self._pages).gist(hit.url, query, chars, caller)
        except PageUnreadable:
            return ""


T = TypeVar("T")


def _started(part: T | None) -> T:
    if part is None:
        raise RuntimeError("web_search was called before it was started")
    return part
