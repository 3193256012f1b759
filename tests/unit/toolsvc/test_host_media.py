"""What a host holds of observations and of tasks: bounds, blobs, media."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import toolsvc.host.host
import toolsvc.host.task_blobs
import toolsvc.host.turnstile
from tests.support.hosts import Counter, calling, opening, refused, said
from toolsvc.errors import Reason
from toolsvc.host.host import Host
from toolsvc.plugin.tool import Tool
from toolsvc.types import (
    Call,
    Media,
    Recorded,
    Result,
    SessionInfo,
)
from toolwright.types import BlobRef


async def test_observations_are_bounded_for_every_tool() -> None:
    class Long(Counter):
        name = "long"
        keep = "tail"

        async def call(self, state: list[Any], call: Call) -> str:
            return "a" * 1000 + "\x00end"

    async with Host([Long()], observation_limit=100) as host:
        await host.open(opening())
        answer = await host.call(calling("a", tool="long"))
        assert answer.result.truncated
        assert said(answer).endswith("aend")
        assert len(said(answer)) < 100


class Album(Tool):
    """Shows the task's media."""

    name = "album"
    media = True

    async def open(self, session: SessionInfo) -> list[Media]:
        return list(session.blobs.values())

    async def call(self, state: list[Media], call: Call) -> Result:
        return Result.of(*state)


async def put(host: Host, data: bytes) -> BlobRef:
    name = hashlib.sha256(data).hexdigest()
    with host.take_in(BlobRef(sha256=name, media_type="image/png", size=len(data))) as upload:
        await upload.add(data)
        return await upload.finish()


async def test_the_media_of_a_task_are_its_session_s() -> None:
    async with Host([Album()]) as host:
        blobs = tuple([await put(host, data) for data in (b"front", b"back")])
        with refused(Reason.BLOB_NOT_FOUND):
            missing = BlobRef(sha256="0" * 64, media_type="", size=1)
            await host.open(opening(blobs=(*blobs, missing)))
        assert host.session_ids == []
        await host.open(opening(blobs=blobs))
        shown = await host.call(calling("a", tool="album"))
        assert isinstance(shown, Recorded)
        assert [part.data for part in shown.result.observation if isinstance(part, Media)] == [
            b"front",
            b"back",
        ]


async def test_media_of_tasks_go_with_their_session_or_unclaimed(
    monkeypatch: pytest.MonkeyPatch, until: Callable[[Callable[[], bool]], Awaitable[None]]
) -> None:
    monkeypatch.setattr(toolsvc.host.task_blobs, "UNCLAIMED_SECONDS", 0.0)
    monkeypatch.setattr(toolsvc.host.host, "REAP_SECONDS", 0.01)
    async with Host([Album()]) as host:
        blob = await put(host, b"front")
        await host.open(opening(blobs=(blob,)))
        await put(host, b"never named")
        await until(lambda: host.blob_bytes == toolsvc.host.task_blobs.LEAST_BYTES)
        assert host.blob(blob.sha256) == b"front"
        await host.close("s")
        assert host.blob_bytes == 0


async def test_a_session_that_does_not_open_holds_no_media(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(Album):
        async def open(self, session: SessionInfo) -> list[Media]:
            raise RuntimeError("it does not open")

    monkeypatch.setattr(toolsvc.host.task_blobs, "UNCLAIMED_SECONDS", 0.0)
    async with Host([Broken()]) as host:
        blob = await put(host, b"front")
        with pytest.raises(RuntimeError):
            await host.open(opening(blobs=(blob,)))
        assert host.blob_bytes == 0


async def test_a_service_that_stops_takes_no_media() -> None:
    async with Host([Album()]) as host:
        await host.drain(0)
        with refused(Reason.DRAINING):
            await put(host, b"front")
