"""Agents of a service that already runs: the kind `http`.

The host posts one JSON document a trajectory, with the names of an agent's environment variables.
The service answers when the agent is done, or at once with 202; then the agent ends its trajectory
itself, at the ingress.

Invariants
- A document is posted once. What follows a failure is the engine's to decide: another attempt if
  infrastructure failed or the agent made no model call.
- A trajectory that ends takes its connection with it, and sends DELETE to the `Location` of a 202.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import structlog
from yarl import URL

from agents.client import ClientSettings
from agents.environment import task_data
from agents.kinds.kind import Assigned, Kind, Played, Site
from agents.outcomes import MOST_RESULT, Ending, failed, lost, with_result
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.recipe import Agent

CONNECT_S = 10.0
"""Longest time to connect, in seconds. The trajectory's own time limits the rest."""
DELETE_S = 3.0
"""Longest time of a DELETE, in seconds: less than a host takes to stop."""
MOST_SHOWN = 4096
"""Bytes of an answer other than 200 that the record shows."""
ACCEPTED = 202

log = structlog.get_logger("agents")


class ServiceKind(Kind):
    """`http`. Use it inside of an event loop."""

    def __init__(self, rules: Agent, site: Site, token: str) -> None:
        """token: bearer token of the service; "" = it needs none."""
        self._rules = rules
        self._site = site
        self._url = URL(rules.url)
        self.words = f"by the service {rules.url}"
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    async def play(self, assigned: Assigned) -> Played:
        document = self._document(assigned)
        try:
            async with self._session.post(
                self._url, json=document, allow_redirects=False
            ) as response:
                if response.status == ACCEPTED:
                    await self._until_over(assigned, response.headers.get("Location", ""))
                data = await _first_bytes(response, MOST_RESULT + 1)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Played(ending=lost(f"{self._url}: {type(error).__name__}: {error}"))
        status, shown = response.status, data[:MOST_SHOWN].decode("utf-8", "replace")
        if status == 200:
            ending, result = with_result(Ending(outcome=pb.OUTCOME_DONE), data or b"{}")
            return Played(ending=ending, result=result, output=shown)
        if status in self._rules.retry_exits:
            ending = lost(f"status {status}, which task.agent.retry_exits has: {shown[:200]}")
        else:
            ending = failed(f"{self._url} answered with status {status}: {shown[:200]}")
        return Played(ending=ending, output=shown)

    async def close(self) -> None:
        await self._session.close()

    def _document(self, assigned: Assigned) -> dict[str, Any]:
        client = ClientSettings.of(self._site.ingress, assigned.key)
        found: dict[str, Any] = {**self._rules.environment, **client.variables()}
        found["TOOLWRIGHT_TASK"] = task_data(assigned.task)
        if assigned.reward_key:
            found["TOOLWRIGHT_REWARD_KEY"] = assigned.reward_key
        return found

    async def _until_over(self, assigned: Assigned, location: str) -> None:
        """Waits until the trajectory is over, which cancels it, and deletes the agent."""
        log.info("agent_accepted", attempt=assigned.attempt, location=location)
        try:
            await asyncio.Event().wait()
        finally:
            if location:
                await self._delete(assigned, location)

    async def _delete(self, assigned: Assigned, location: str) -> None:
        about = log.bind(attempt=assigned.attempt, location=location)
        try:
            there = self._url.join(URL(location))
            if there.origin() != self._url.origin():  # the token is this service's
                about.warning("delete_refused", error="the location is another server")
                return
            timeout = aiohttp.ClientTimeout(total=DELETE_S)
            async with self._session.delete(
                there, allow_redirects=False, timeout=timeout
            ) as response:
                about.info("agent_deleted", status=response.status)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            about.warning("delete_failed", error=f"{type(error).__name__}: {error}")


async def _first_bytes(response: aiohttp.ClientResponse, most: int) -> bytes:
    found = bytearray()
    async for piece in response.content.iter_chunked(1 << 16):
        found += piece
        if len(found) >= most:
            break
    return bytes(found[:most])
