"""A plain reader of the sampler's wire, for the contract tests.

Owns requests and the splitting of event streams. It judges nothing and repairs nothing: a stream is
the list of events as they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson


@dataclass(slots=True)
class Stream:
    """The events of one streamed answer; `done` tells whether [DONE] came."""

    status: int
    events: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def last(self) -> dict[str, Any]:
        """The last event."""
        return self.events[-1]

    @property
    def finish(self) -> dict[str, Any] | None:
        """The last event's finish reason."""
        reason: dict[str, Any] | None = self.last["meta_info"]["finish_reason"]
        return reason

    def ids(self, *, incremental: bool) -> list[int]:
        """All ids of the reply, by the rule of the stream's shape."""
        if not incremental:
            return list(self.last["output_ids"])
        return [token_id for event in self.events for token_id in event["output_ids"]]

    def logprobs(self, *, incremental: bool) -> list[list[Any]]:
        """All log-prob triples, by the rule of the stream's shape."""
        shown = self.events if incremental else self.events[-1:]
        return [entry for event in shown for entry in event["meta_info"]["output_token_logprobs"]]


class WireClient:
    """Requests to one sampler."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session

    async def post(self, path: str, body: object = None) -> tuple[int, Any]:
        """POST JSON; the answer parsed where it is JSON, else as text."""
        async with self._session.post(self.url + path, json=body if body is not None else {}) as r:
            return r.status, _parsed(await r.read())

    async def get(self, path: str) -> tuple[int, Any]:
        """GET; the answer parsed where it is JSON, else as text."""
        async with self._session.get(self.url + path) as r:
            return r.status, _parsed(await r.read())

    async def stream(self, body: dict[str, Any], into: Stream | None = None) -> Stream:
        """POST /generate and read to the end of the body; `into` can be watched meanwhile."""
        stream = into or Stream(status=0)
        async with self._session.post(self.url + "/generate", json={**body, "stream": True}) as r:
            stream.status = r.status
            async for line in r.content:
                if not line.startswith(b"data: "):
                    continue
                if line.strip() == b"data: [DONE]":
                    stream.done = True
                else:
                    stream.events.append(orjson.loads(line[6:]))
                    stream.arrived.set()
        return stream

    @asynccontextmanager
    async def streaming(
        self, body: dict[str, Any], *, after: int = 1
    ) -> AsyncIterator[tuple[Stream, asyncio.Task[Stream]]]:
        """A stream in the background, entered once `after` events have arrived."""
        stream = Stream(status=0)
        task = asyncio.create_task(self.stream(body, into=stream))
        task.add_done_callback(lambda _: stream.arrived.set())
        try:
            async with asyncio.timeout(20):
                while len(stream.events) < after and not task.done():
                    stream.arrived.clear()
                    await stream.arrived.wait()
            yield stream, task
        finally:
            if not task.done():
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _parsed(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw.decode()
