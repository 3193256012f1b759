"""One episode at an OpenEnv server: a WebSocket that belongs to one session of this service.

Invariants
- Messages take turns: one request, one answer. After a request that got no answer the episode is
  lost, so no late answer is taken for another request's.
- The connection is read all the time: a server ends one that does not answer its pings.
- An answer has at most `MOST_BYTES`. What is not the protocol is a `NotOpenEnv` of one sentence.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from toolwright.reading.json_text.json_bounds import fits_double

MOST_BYTES = 4 << 20
"""Largest answer, in bytes."""
CONNECT_SECONDS = 30.0
"""Longest time to connect, and for the server's first answer."""
HEARTBEAT_SECONDS = 60.0
"""Time between pings. A server that does not answer for half of it is gone."""
_AWAY = ("CAPACITY_REACHED", "FACTORY_ERROR", "SESSION_ERROR")
"""Codes of a server that has no place for a session, or lost it."""


class Away(Exception):
    """The server cannot be reached, has no place, or is gone; the message says which."""


class NotOpenEnv(Exception):
    """The server's answer is not OpenEnv's protocol."""


class StepRefused(Exception):
    """The server refuses an action. unfit: whether the action does not fit its schema."""

    def __init__(self, message: str, *, unfit: bool) -> None:
        super().__init__(message)
        self.unfit = unfit


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Answer to a reset or a step."""

    text: str
    reward: float | None
    done: bool


class RemoteEpisode:
    """`begin` connects and resets; then `step`."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """url: base URL of the server, http or https."""
        self._url = f"{url}/ws"
        self._headers = headers
        self._http: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reading: asyncio.Task[None] | None = None
        self._answer: asyncio.Future[str] | None = None
        self.lost: str | None = None
        """Reason why the connection is gone; None = it is there, or was never made."""

    def again(self) -> RemoteEpisode:
        """An episode that has not begun, at the same server."""
        return RemoteEpisode(self._url.removesuffix("/ws"), self._headers)

    async def begin(self, reset: Mapping[str, Any]) -> Observed:
        """First observation. reset: arguments of the environment's reset. Raises Away, NotOpenEnv,
        or StepRefused."""
        self._http = aiohttp.ClientSession(headers=self._headers)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                self._socket = await self._http.ws_connect(
                    self._url, max_msg_size=MOST_BYTES, heartbeat=HEARTBEAT_SECONDS
                )
                self._reading = asyncio.create_task(self._read(self._socket))
                return await self._ask("reset", reset)
        except TimeoutError as error:
            raise Away(f"{self._url} did not begin within {CONNECT_SECONDS:g} s") from error
        except aiohttp.ClientError as error:
            raise Away(f"{self._url}: {error}") from error

    async def step(self, action: Mapping[str, Any]) -> Observed:
        """Raises Away, NotOpenEnv or StepRefused. If it is cancelled, the episode is lost."""
        try:
            return await self._ask("step", action)
        except asyncio.CancelledError:
            self.lost = "a step was stopped before its answer"
            raise

    async def close(self) -> None:
        """Ends the episode at the server."""
        self.lost = self.lost or "closed"
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._socket is not None:
            await self._socket.close()
        if self._http is not None:
            await self._http.close()

    async def _ask(self, kind: str, data: Mapping[str, Any]) -> Observed:
        socket = self._socket
        if socket is None or self.lost is not None:
            raise Away(f"{self._url}: {self.lost or 'not connected'}")
        self._answer = asyncio.get_running_loop().create_future()
        try:
            await socket.send_str(json.dumps({"type": kind, "data": dict(data)}))
            text = await self._answer
        except (aiohttp.ClientError, ConnectionError) as error:
            self.lost = self.lost or f"the connection broke: {error}"
            raise Away(f"{self._url}: {self.lost}") from error
        try:
            return read_answer(text)
        except Away as error:
            self.lost = str(error)
            raise

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Until the connection ends. `receive` also answers pings."""
        while True:
            message = await socket.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                self.lost = self.lost or _end_of(message)
                break
            if self._answer is None or self._answer.done():
                self.lost = self.lost or "the server sent what no request asked for"
                break
            self._answer.set_result(message.data)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError(self.lost))


def read_answer(text: str) -> Observed:
    """An answer to a reset or a step. Raises StepRefused or Away for the server's errors, and
    NotOpenEnv."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotOpenEnv(f"its answer is not JSON: {error}") from error
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, dict):
        raise NotOpenEnv("its answer has no data")
    if answer.get("type") == "error":
        raise _error(data)
    observation, reward = data.get("observation"), data.get("reward")
    if answer.get("type") != "observation" or not isinstance(observation, dict):
        raise NotOpenEnv(f"its answer has type {answer.get('type')!r:.80}, not an observation")
    if reward is not None and not (isinstance(reward, int | float) and fits_double(reward)):
        raise NotOpenEnv(f"its reward is {reward!r:.80}, not a number")
    return Observed(
        text=text_of(observation),
        reward=None if reward is None else float(reward),
        done=data.get("done") is True,
    )


def text_of(observation: Mapping[str, Any]) -> str:
    """The observation without its metadata: the text of its only field, or else JSON."""
    shown = {name: value for name, value in observation.items() if name != "metadata"}
    if len(shown) == 1:
        (only,) = shown.values()
        if isinstance(only, str):
            return only
    return json.dumps(shown, ensure_ascii=False)


def _error(data: Mapping[str, Any]) -> Exception:
    code, message = str(data.get("code")), str(data.get("message", ""))[:2000]
    if code in _AWAY:
        return Away(f"{code}: {message}")
    faults = data.get("errors")
    if code == "VALIDATION_ERROR" and isinstance(faults, list):
        message = "; ".join(_fault(one) for one in faults[:8]) or message
    return StepRefused(message or code, unfit=code == "VALIDATION_ERROR")


def _fault(fault: Any) -> str:
    """A fault of pydantic's, in one line."""
    if not isinstance(fault, dict):
        return str(fault)[:200]
    where = ".".join(map(str, fault.get("loc") or ()))
    return f"{where}: {fault.get('msg', '')}"[:200]


def _end_of(message: aiohttp.WSMessage) -> str:
    if message.type is aiohttp.WSMsgType.ERROR:
        return f"its answer cannot be read: {message.data}"
    return "the server closed the episode"
