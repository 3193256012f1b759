"""Extracts the text of a page in a confined process (`parser`), so that a hostile page harms no
other page."""

from __future__ import annotations

import json

from pydantic import BaseModel, ValidationError

from toolsvc.confined.errors import InputFailed
from toolsvc.confined.pool import ConfinedPool, file_of
from toolsvc.plugin.tool import STRICT
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.tools.web_search.fetch import MOST_BYTES, Fetched
from toolsvc.tools.web_search.types import Page, PageUnreadable

EXTRACT_SECONDS = 10.0
PATIENCE_SECONDS = 20.0
"""Longest wait for a free process, in seconds; without one the call is not run."""
_MEMORY_BYTES = 1024 * MIB
_ANSWER_BYTES = 8 * MOST_BYTES
"""JSON writes a character in up to six bytes."""
_URL_CHARS = 2048
"""Maximum characters of an address for the parser, which reads its host."""
_TOO_STRANGE = "the page is too large or too strange to be read"


class _Read(BaseModel):
    model_config = STRICT

    title: str
    text: str


class Extractor:
    def __init__(self, processes: int, sandbox: SandboxConfig | None = None) -> None:
        self._pool = ConfinedPool(
            "toolsvc.tools.web_search.parser",
            count=processes,
            memory_bytes=_MEMORY_BYTES,
            sandbox=sandbox,
        )

    async def start(self) -> None:
        """Raises CannotStart."""
        await self._pool.start()

    async def close(self) -> None:
        await self._pool.close()

    def figures(self) -> dict[str, float]:
        return self._pool.figures()

    async def extract(self, fetched: Fetched, caller: str) -> Page:
        """Raises PageUnreadable if the page has no text. Raises PoolFull or PoolDown."""
        request = {
            "url": fetched.url[:_URL_CHARS],
            "charset": fetched.charset,
            "markup": fetched.markup,
        }
        async with self._pool.place(caller, PATIENCE_SECONDS) as jobs:
            try:
                with file_of(fetched.body) as file:
                    answer = await jobs.run(
                        json.dumps(request), file, seconds=EXTRACT_SECONDS, most=_ANSWER_BYTES
                    )
                read = _Read.model_validate_json(answer)
            except (InputFailed, ValidationError) as error:
                raise PageUnreadable(_TOO_STRANGE) from error
        if not read.text:
            raise PageUnreadable("the page holds no text")
        return Page(url=fetched.url, title=read.title, text=read.text)
