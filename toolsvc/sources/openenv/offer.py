"""Episodes of a ToolService, as an OpenEnv server has them.

Invariants
- An episode is one session of the service. A reset closes it and opens another one, whose metadata
  are the reset's arguments.
- A closed episode begins no session; its requests are refused.
- The session of an episode without a request for `IDLE_SECONDS` ends by its lease. The next `open`
  ends the episode too, unless a WebSocket holds it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from toolsvc.edge.client import Client, OpenedSession
from toolsvc.sources.openenv.answers import ToolAction, listed, observed
from toolwright.reading.json_text.json_bounds import OutOfBounds, check_values
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb

IDLE_SECONDS = 1800.0
"""Lease of a session; every call renews it."""
MOST_EPISODES = 1024
"""Episodes that one server holds."""


class Full(Exception):
    """There is no place for another episode."""


class NoSuchTool(Exception):
    """The service has no tool of that name; the message lists those that it has."""


class EpisodeClosed(Exception):
    """The episode was closed; it answers nothing more."""


class OfferedEpisode:
    """An episode, and the episodes after it on the same connection. One request at a time."""

    def __init__(self, client: Client) -> None:
        self.id = uuid.uuid4().hex
        self.used = time.monotonic()
        """Time of the last request."""
        self.steps = 0
        self.attached = False
        """Whether a WebSocket holds it."""
        self._closed = False
        self._client = client
        self._session: OpenedSession | None = None
        self._turn = asyncio.Lock()

    async def reset(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Observation of a new episode. Raises EpisodeClosed, OutOfBounds, ServiceError or
        TransportError."""
        check_values(arguments)
        async with self._turn:
            self.check_open()
            await self._end()
            session = await self._begin(arguments)
            return listed(session.tools.values())

    async def step(self, action: ToolAction) -> dict[str, Any]:
        """Observation of an action. Raises EpisodeClosed, NoSuchTool, OutOfBounds, ServiceError or
        TransportError."""
        async with self._turn:
            self.check_open()
            self.used = time.monotonic()
            session = self._session or await self._begin({})
            if not action.name:
                return listed(session.tools.values())
            if action.name not in session.tools:
                known = ", ".join(session.tools)
                raise NoSuchTool(f"there is no tool {action.name!r}, only {known}")
            check_values(action.arguments)
            await session.renew(IDLE_SECONDS)
            result = await session.call(action.name, "", action.arguments)
            self.steps += 1
            return observed(result, action.name, await session.parts(result))

    def state(self) -> dict[str, Any]:
        return {"episode_id": self.id, "step_count": self.steps}

    def check_open(self) -> None:
        """Raises EpisodeClosed."""
        if self._closed:
            raise EpisodeClosed(f"the session {self.id} was closed: connect again for another one")

    async def close(self) -> None:
        """Waits for the request that runs; those that wait for it are refused."""
        self._closed = True
        async with self._turn:
            await self._end()

    async def _begin(self, metadata: Mapping[str, Any]) -> OpenedSession:
        self.used = time.monotonic()
        self.steps = 0
        name = f"openenv-{uuid.uuid4().hex}"
        self._session = await self._client.open((), metadata, name, lease=IDLE_SECONDS)
        return self._session

    async def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await asyncio.gather(session.close(), return_exceptions=True)


class EpisodeOffer:
    """All episodes of a server."""

    def __init__(self, client: Client, tools: Sequence[pb.ToolDescriptor]) -> None:
        self.tools = tools
        self._client = client
        self._episodes: dict[str, OfferedEpisode] = {}

    async def open(self) -> OfferedEpisode:
        """Raises Full."""
        await self._end_idle()
        if len(self._episodes) >= MOST_EPISODES:
            raise Full(f"{MOST_EPISODES} episodes are open: close some, or start another server")
        episode = OfferedEpisode(self._client)
        self._episodes[episode.id] = episode
        return episode

    def find(self, name: object) -> OfferedEpisode | None:
        return self._episodes.get(name) if isinstance(name, str) else None

    async def end(self, episode: OfferedEpisode) -> None:
        if self._episodes.pop(episode.id, None) is not None:
            await episode.close()

    async def close(self) -> None:
        await asyncio.gather(*map(self.end, list(self._episodes.values())))

    async def _end_idle(self) -> None:
        late = time.monotonic() - IDLE_SECONDS
        idle = [one for one in self._episodes.values() if one.used < late and not one.attached]
        await asyncio.gather(*map(self.end, idle))


FAILURES = (ServiceError, TransportError, OutOfBounds, NoSuchTool, EpisodeClosed)
"""What an episode raises."""
