"""The text of a page, by trafilatura, in processes of its own: a hostile page costs a process its
time or its memory, and nobody else anything."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource

from pebble import ProcessExpired, ProcessPool

from toolsvc.tools.web_search.fetch import Fetched
from toolsvc.tools.web_search.types import Page, PageUnreadable

EXTRACT_SECONDS = 10.0
_MEMORY_BYTES = 1 << 30
_TASKS = 1000
"""After which a process begins anew: parsers keep memory."""


class Extractor:
    """Processes start with the first page, and are to be closed."""

    def __init__(self, processes: int) -> None:
        self._pool = ProcessPool(
            max_workers=processes,
            max_tasks=_TASKS,
            initializer=_confine,
            # Not by fork: the service runs threads of gRPC.
            context=multiprocessing.get_context("spawn"),
        )

    async def extract(self, fetched: Fetched) -> Page:
        """PageUnreadable if there is no text on it."""
        work = self._pool.schedule(_extract, args=(fetched,), timeout=EXTRACT_SECONDS)
        try:
            page = await asyncio.wrap_future(work)
        except (TimeoutError, MemoryError, ProcessExpired) as error:
            raise PageUnreadable("the page is too large or too strange to be read") from error
        if not page.text:
            raise PageUnreadable("the page holds no text")
        return page

    async def close(self) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call]
        await asyncio.to_thread(self._pool.join)


def _confine() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


def _extract(fetched: Fetched) -> Page:
    # In the process that needs it: it takes longer to import than all the rest of the tool.
    import trafilatura

    if not fetched.markup:
        try:
            text = fetched.body.decode(fetched.charset or "utf-8", "replace")
        except LookupError:
            text = fetched.body.decode("utf-8", "replace")
        return Page(url=fetched.url, title="", text=text.strip())
    found = trafilatura.bare_extraction(
        fetched.body, url=fetched.url, include_comments=False, with_metadata=True
    )
    if found is None:
        return Page(url=fetched.url, title="", text=trafilatura.html2txt(fetched.body).strip())
    document = found if isinstance(found, dict) else found.as_dict()
    return Page(
        url=fetched.url, title=document["title"] or "", text=(document["text"] or "").strip()
    )
