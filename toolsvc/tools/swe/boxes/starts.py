"""Starts boxes, so many at once at most, and counts what it costs.

A box is prepared in its start (`preparation`). Starting is what a machine with containers is
slowest at: it reads the image from the disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from toolsvc.errors import backend_down
from toolsvc.tools.files import Entry
from toolsvc.tools.swe.boxes.box import Box, BoxError, BoxGone, Runner, StartFailed

_KEPT = 64 * 1024
"""Kept output of a preparation, in bytes."""
_SAID = 300
"""Longest quotation of that output in an error, in characters."""


class Starts:
    def __init__(self, runner: Runner, *, most: int, limit: float) -> None:
        """`most`: at once. `limit`: seconds for one, without the wait for its turn."""
        self._runner = runner
        self._places = asyncio.Semaphore(most)
        self._limit = limit
        self._waiting = 0
        self._starting = 0
        self._started = 0
        self._failed = 0
        self._seconds = 0.0

    async def start(
        self, image: str, checkout: Sequence[Entry], preparation: str = ""
    ) -> tuple[Box, float]:
        """A box in which the preparation was run, and the seconds that it took to start. Raises
        Refused if none can be had."""
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        self._starting += 1
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._limit):
                box = await self._prepared(image, checkout, preparation)
        except (StartFailed, TimeoutError) as error:
            self._failed += 1
            why = str(error) or f"it was not there after {self._limit:g} s"
            raise backend_down(f"no box could be started: {why}") from error
        finally:
            self._starting -= 1
            self._places.release()
        seconds = time.perf_counter() - began
        self._started += 1
        self._seconds += seconds
        return box, seconds

    async def _prepared(self, image: str, checkout: Sequence[Entry], preparation: str) -> Box:
        """Raises StartFailed; nothing is left of the box then."""
        box = await self._runner.box(image, checkout)
        if not preparation:
            return box
        try:
            ran = await box.exec(preparation, limit=self._limit, keep=_KEPT)
        except BaseException as error:
            await box.close()
            if isinstance(error, BoxError | BoxGone):
                raise StartFailed(f"it was not prepared: {error}") from error
            raise
        if ran.code != 0:
            await box.close()
            said = ran.lost or ran.output.decode("utf-8", "replace").strip()[-_SAID:]
            raise StartFailed(f"its preparation ended with exit code {ran.code}: {said}")
        return box

    def figures(self) -> Mapping[str, float]:
        return {
            "boxes_waited_for": self._waiting,
            "boxes_starting": self._starting,
            "boxes_started_total": self._started,
            "box_starts_failed_total": self._failed,
            "box_start_seconds_total": self._seconds,
            **self._runner.figures(),
        }
