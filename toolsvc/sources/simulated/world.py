"""Invented answers that all sessions of a group share.

Invariants
- Equal questions are asked once, also if several come at the same time; all get the same answer.
- Only answers that passed their checks are kept.
- At most `_HELD` answers are held in memory. The optional cache has a bound of its own, and several
  workers share it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from toolsvc.backends.cache import Cache
from toolsvc.backends.single_flight import SingleFlight

_HELD = 65_536


class World:
    def __init__(self, cache: Cache | None) -> None:
        """The caller owns the cache."""
        self._cache = cache
        self._held: OrderedDict[str, str] = OrderedDict()
        self._flights: SingleFlight[str] = SingleFlight()
        self._known = 0

    async def fact(self, key: str, make: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """The answer under `key`, or the result of `make`. Raises as `make` does."""
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
            self._known += 1
            return found
        return await self._flights.do(key, lambda: self._find(key, make))

    def figures(self) -> dict[str, float]:
        return {"facts": len(self._held), "facts_known_total": self._known}

    async def _find(self, key: str, make: Callable[[], Coroutine[Any, Any, str]]) -> str:
        stored = None if self._cache is None else await self._cache.get(key)
        if stored is None:
            fact = await make()
            if self._cache is not None:
                await self._cache.put(key, fact.encode())
        else:
            fact = stored.decode()
        self._held[key] = fact
        while len(self._held) > _HELD:
            self._held.popitem(last=False)
        return fact
