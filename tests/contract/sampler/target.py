"""A running sampler as the checks speak to it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.contract import schema
from tests.contract.client import Stream, WireClient

PROMPT = [5, 6, 7, 8] * 4
VOCABULARY = 512
SETTLE_S = 0.3
"""Long enough for a chunk on its way to arrive on a busy machine."""
DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running sampler, two weight folders it can load, and the shape of its streams."""

    client: WireClient
    weights: tuple[Path, Path]
    incremental: bool
    serial: itertools.count[int] = field(default_factory=itertools.count)

    def body(self, name: str, /, max_new_tokens: int = 2000, **changes: Any) -> dict[str, Any]:
        """A request whose id is a prefix of no other; `params` is merged into the sampling ones."""
        params = {
            "max_new_tokens": max_new_tokens,
            "temperature": 1.0,
            "ignore_eos": True,
            **changes.pop("params", {}),
        }
        return {
            "rid": f"{name}-{next(self.serial):06d}",
            "input_ids": PROMPT,
            "return_logprob": True,
            "sampling_params": params,
            **changes,
        }

    async def abort(self, rid: str) -> None:
        """Abort by id."""
        assert (await self.client.post("/abort_request", {"rid": rid}))[0] == 200

    async def version(self) -> str:
        """The weight version that the server reports."""
        version: str = (await self.client.get("/model_info"))[1]["weight_version"]
        return version

    @asynccontextmanager
    async def paused(self, mode: str) -> AsyncIterator[None]:
        """A pause that always ends."""
        status, answer = await self.client.post("/pause_generation", {"mode": mode})
        assert (status, answer["status"]) == (200, "ok")
        try:
            yield
        finally:
            status, answer = await self.client.post("/continue_generation")
            assert (status, answer["status"]) == (200, "ok")

    async def until_running(self, count: int) -> None:
        """Wait until the server reports this many running replies."""
        async with asyncio.timeout(10):
            while await self._running() != count:  # noqa: ASYNC110 - it has no event to wait for
                await asyncio.sleep(0.05)

    async def _running(self) -> int:
        running: int = (await self.client.get("/v1/loads"))[1]["loads"][0]["num_running_reqs"]
        return running

    def check_whole(self, stream: Stream) -> None:
        """A stream that ended by itself: totals, ids, log-probs and versions agree."""
        assert (stream.status, stream.done) == (200, True)
        for event in stream.events:
            schema.check_answer(event)
        assert all(e["meta_info"]["finish_reason"] is None for e in stream.events[:-1])
        meta = stream.last["meta_info"]
        ids = stream.ids(incremental=self.incremental)
        assert meta["completion_tokens"] == len(ids)
        triples = stream.logprobs(incremental=self.incremental)
        assert [token_id for _, token_id, _ in triples] == ids
        assert all(isinstance(logprob, float) and logprob <= 0 for logprob, _, _ in triples)
        assert meta["output_token_logprobs_length"] == len(ids)
        spans_cover(meta["weight_versions"], len(ids))
        assert meta["weight_version"] == meta["weight_versions"][-1]["version"]
        assert meta["e2e_latency"] > 0


def spans_cover(spans: list[dict[str, Any]], total: int) -> None:
    """The spans cover [0, total) without gaps."""
    assert [s["start"] for s in spans] == [0, *(s["end"] for s in spans[:-1])]
    assert spans[-1]["end"] == total


async def finished(task: asyncio.Task[Stream]) -> Stream:
    """The stream's end, within the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        return await task
