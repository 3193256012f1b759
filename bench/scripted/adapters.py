"""The adapters (LoRA) of one server: loaded and unloaded beside the weights, named by requests.

No adapter is read. Three surprises of the real server remain: an unload answers after the last
reply of its adapter, no other load runs meanwhile, and a request that names an unloaded adapter
loads it again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.scripted.types import RequestError

Answer = tuple[bool, str]
"""(whether the call succeeded, message of the server)."""
CONFIG = "adapter_config.json"


class Adapters:
    """`loaded` has the folder of each adapter, by name."""

    def __init__(self, *, enabled: bool) -> None:
        self.loaded: dict[str, str] = {}
        self._enabled = enabled
        self._seen: dict[str, str] = {}
        """Folders of all adapters that were ever loaded."""
        self._users: Counter[str] = Counter()
        self._call = asyncio.Lock()
        self._left = asyncio.Condition()

    async def load(self, name: str, folder: str) -> Answer:
        """Loads an adapter under a new name."""
        if not self._enabled:
            return False, "LoRA is not enabled. Please set `--enable-lora` to enable LoRA."
        async with self._call:
            if name in self.loaded:
                return False, f"Failed to load LoRA adapter {name} because it is already loaded"
            if not await asyncio.to_thread((Path(folder) / CONFIG).is_file):
                return False, f"Can't find '{CONFIG}' at '{folder}'"
            self.loaded[name] = self._seen[name] = folder
            return True, ""

    async def unload(self, name: str) -> Answer:
        """Unloads an adapter, which new requests cannot name at once."""
        async with self._call:
            if self.loaded.pop(name, None) is None:
                return False, f"LoRA with name {name} does not exist."
            async with self._left:
                await self._left.wait_for(lambda: not self._users[name])
            return True, ""

    @asynccontextmanager
    async def used(self, name: str) -> AsyncIterator[None]:
        """Context of a reply by an adapter; an empty name is the model alone.

        Raises:
            RequestError: no adapter of that name was ever loaded.
        """
        if name and not self._enabled:
            raise RequestError(f"LoRA adapter '{name}' was requested, but LoRA is not enabled.")
        if name and name not in self.loaded:
            if name not in self._seen:
                raise RequestError(f"Got LoRA adapter that has never been loaded: {name}")
            await self.load(name, self._seen[name])
        self._users[name] += 1
        try:
            yield
        finally:
            self._users[name] -= 1
            async with self._left:
                self._left.notify_all()
