"""Loads of weights that a scripted sampler holds back or refuses."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.scripted import ScriptedSampler


class Loads:
    """Loads of one sampler from now on: each waits for `go`, then the next `refuse` are refused."""

    def __init__(self, sampler: ScriptedSampler, *, go: bool = False, refuse: int = 0) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        if go:
            self.go.set()
        self.loaded: list[str] = []
        """Arguments of each load, in the order of their beginnings."""
        self._refuse = refuse
        self._load = sampler.scheduler.load_weights
        sampler.scheduler.load_weights = self._slow  # type: ignore[method-assign]

    async def _slow(self, *args: Any, **kwargs: Any) -> bool:
        self.loaded.append(str(args[0] if args else kwargs))
        self.begun.set()
        await self.go.wait()
        if self._refuse:
            self._refuse -= 1
            return False
        return await self._load(*args, **kwargs)
