"""Keys of requests: where they stand, and whether the engine knows them.

Invariants
- A request with a wrong key costs one call of the engine. Nothing of its body is read.
- The engine names a key's use once. The answer holds for all lives of the engine, so it is kept.
- A key has at most `MOST_REQUESTS` requests in progress.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import hdrs, web

from ingress.errors import ApiError
from ingress.link import EngineLink
from toolwright.ingress.limits import MOST_AT_ONCE
from toolwright.ingress.v1 import ingress_pb2 as pb

AGENT_HEADER = "x-toolwright-agent"
LONGEST_AGENT = 64
"""Characters of an agent's label that are kept."""
MOST_REQUESTS = 2 * MOST_AT_ONCE
"""The engine has `MOST_AT_ONCE` calls of a trajectory in flight. A retry may join each of them."""
MOST_KEYS = 1 << 16
"""Keys whose use is kept."""
MOST_CHECKS = 64
"""Keys that the engine checks at a time, so that wrong keys do not hold it up."""
LONGEST_KEY = 1024
"""Characters of a key."""

CALLS, REPORT = pb.KEY_USE_CALLS, pb.KEY_USE_REPORT
Uses = tuple[pb.KeyUse.ValueType, ...]


class KeyChecks:
    """The keys of one server."""

    def __init__(self, link: EngineLink) -> None:
        self._link = link
        self._uses: dict[str, pb.KeyUse.ValueType] = {}
        self._requests = Counter[str]()
        self._room = asyncio.Semaphore(MOST_CHECKS)

    async def check(self, key: str, uses: Uses) -> pb.KeyUse.ValueType:
        """The key's use. Waits for an engine that is away. Raises ApiError for a key that is for
        none of the uses, ServiceError for an unknown one."""
        found = self._uses.get(key)
        if found is None:
            async with self._room:
                found = await self._link.use_of_key(key)
            if len(self._uses) >= MOST_KEYS:
                del self._uses[next(iter(self._uses))]
            self._uses[key] = found
        if found not in uses:
            raise ApiError(
                "the key is not for this use: report with the reward key, and make calls with the "
                "other one",
                status=403,
                kind="permission_error",
                code="wrong_key",
            )
        return found

    @contextmanager
    def request(self, key: str) -> Iterator[None]:
        """Counts a request of the key while the block runs. Raises ApiError for one too many."""
        if self._requests[key] >= MOST_REQUESTS:
            raise ApiError(
                f"{MOST_REQUESTS} requests of this key are in progress already",
                status=429,
                kind="rate_limit_error",
                code="too_many_calls",
                retry_after=1.0,
            )
        self._requests[key] += 1
        try:
            yield
        finally:
            self._requests[key] -= 1
            if not self._requests[key]:
                del self._requests[key]


def key_of(request: web.Request) -> str:
    """The trajectory's key. Raises ApiError without one."""
    found = (
        request.match_info.get("key") or bearer_of(request) or request.headers.get("x-api-key", "")
    )
    if not found or not found.isascii() or len(found) > LONGEST_KEY:
        raise ApiError(
            "the request has no key: send the trajectory's as bearer token, as x-api-key, or in "
            "the path",
            status=401,
            kind="authentication_error",
            code="invalid_api_key",
        )
    return found


def bearer_of(request: web.Request) -> str:
    """The bearer token; "" without one."""
    scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def agent_of(request: web.Request) -> str:
    """Label of the agent; "" without one."""
    found = request.match_info.get("agent", "") or request.headers.get(AGENT_HEADER, "")
    return found[:LONGEST_AGENT].encode("utf-8", "replace").decode()
