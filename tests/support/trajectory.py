"""One trajectory's side of a tool host that runs in the test's own process."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.hosts import calling, opening
from toolsvc.host.host import Host
from toolsvc.types import Media, Recorded, Result, Text
from toolwright.rpc.options import PIECE_BYTES
from toolwright.types import BlobRef

_numbers = itertools.count()


class Trajectory:
    """Calls a session of `host`, which it opens at its first call."""

    def __init__(
        self,
        host: Host,
        tool: str,
        metadata: Mapping[str, Any] | None = None,
        media: Sequence[Media] = (),
    ) -> None:
        self.host = host
        self.tool = tool
        self.metadata = metadata or {}
        self.media = media
        self.session_id = f"session-{next(_numbers)}"
        self.last_call_id = ""

    async def open(self) -> None:
        blobs = [await self._send(media) for media in self.media]
        await self.host.open(
            opening(
                self.session_id, "tests", 600, metadata=self.metadata, queue_limit=60,
                blobs=tuple(blobs),
            )
        )  # fmt: skip

    async def _send(self, media: Media) -> BlobRef:
        name = hashlib.sha256(media.data).hexdigest()
        blob = BlobRef(sha256=name, media_type=media.media_type, size=len(media.data))
        with self.host.take_in(blob) as upload:
            for at in range(0, blob.size, PIECE_BYTES):
                await upload.add(media.data[at : at + PIECE_BYTES])
            return await upload.finish()

    async def act(self, action: str, **more: Any) -> Result:
        """The result of an action; `more`: fields of the CallRequest."""
        if self.session_id not in self.host.session_ids:
            await self.open()
        self.last_call_id = f"call-{next(_numbers)}"
        fields = {"arguments": None, "queue_limit": 60.0, "run_limit": 20.0, "wait": 30.0, **more}
        request = calling(
            self.last_call_id, session=self.session_id, tool=self.tool, action=action, **fields
        )
        while not isinstance(outcome := await self.host.call(request), Recorded):
            pass  # It runs: its limits end it.
        return outcome.result

    def cancel(self) -> bool:
        """Stops the call that was asked for last; False if it is not in flight."""
        return self.host.cancel(self.session_id, self.last_call_id)

    async def close(self) -> None:
        await self.host.close(self.session_id)


def said(result: Result) -> str:
    """The text of a result's observation."""
    texts = []
    for part in result.observation:
        assert isinstance(part, Text)
        texts.append(part.text)
    return "".join(texts)
