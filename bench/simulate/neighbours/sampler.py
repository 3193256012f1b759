"""Scripted samplers without sockets: SGLang's HTTP as bytes to the engine's own reader of them.

Invariants
- A server draws a new answer for every request (`sampler_stream.py`). So a record is right only if
  it holds what the engine really received.
- A server that was started anew has weights of another time until it is given others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, cast

import aiohttp
import orjson

from bench.history.events import Loaded
from bench.simulate.neighbours.sampler_stream import FOREIGN, Connection, See, StreamingServer
from bench.simulate.schedule import Workload
from bench.simulate.virtual.loop import Owner, loop_here, owner_here
from engine.core.sampler.wire.client import NoRoute, SamplerClient, ServerUnreachable
from toolwright.types import WeightVersion

LOADS_S = (0.1, 0.3, 2.0)
"""Mean seconds of a load of weights; each server has one of them."""


class SimulatedServer(StreamingServer):
    """One sampler, seen from the world."""

    def __init__(self, url: str, workload: Workload, random: Random, see: See) -> None:
        super().__init__(url, workload, random, see)
        self.load_s = random.choice(LOADS_S)
        self.refuses = False
        self.breaks_at_update = False
        """It dies amid its next update."""
        self.broke = asyncio.Event()
        """It did."""
        self._changing_since = 0.0
        """When the engine last paused it."""
        self.had: list[str] = []
        """Weights that it was ever given."""

    def kill(self) -> None:
        """The process ends."""
        self.alive = False
        self.aborts.forget()
        self.awake.set()
        self.break_streams()

    def start(self) -> None:
        """Another process, with weights of another time: none of this run's, or older ones."""
        self.alive, self.paused = True, False
        self.weights = self.random.choice([FOREIGN, *self.had])

    def connect(self, protocol: asyncio.Protocol) -> Connection:
        """A connection of the owner that runs now. Raises ConnectionError if the server is gone."""
        self.refuse_if_gone()
        return Connection(self, protocol)

    def refuse_if_gone(self) -> None:
        """Raises ConnectionError where the owner that runs now cannot reach this server."""
        owner = owner_here()
        if not self.alive or (owner is not None and not owner.alive):
            raise ConnectionRefusedError("no connection")

    def break_streams(self) -> None:
        for connection in list(self.connections):
            connection.lose(ConnectionResetError("the connection broke"))

    def client_died(self, client: Owner, *, alone: bool = False) -> None:
        """alone: the engine lives, and aborts what its dead worker left."""
        if not alone:
            self.aborts.forget()
        for connection in [one for one in self.connections if one.client is client]:
            connection.lose(None)

    def client_parted(self, client: Owner) -> None:
        """Its connections break, so that the history has what they carried until now."""
        for connection in [one for one in self.connections if one.client is client]:
            connection.lose(ConnectionResetError("the connection broke"))

    async def control(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answers a control call. ServerUnreachable, ServerRefused or NoRoute."""
        await self._waited(self.random.uniform(0.001, 0.02))
        match path:
            case "/server_info":
                return {
                    "version": "0.5.23",
                    "max_req_input_len": 100_000,
                    "incremental_streaming_output": self.workload.incremental,
                    "skip_tokenizer_init": self.workload.text_stops,
                }
            case "/v1/loads" if self.workload.cache_tokens:
                held = sum(request.length for request in self.requests.values())
                load = {
                    "max_total_num_tokens": self.workload.cache_tokens,
                    "token_usage": held / self.workload.cache_tokens,
                    "num_waiting_reqs": len(self.requests) // 4,
                }
                return {"loads": [load]}
            case "/model_info":
                return {"weight_version": self.weights}
            case "/abort_request":
                self.abort(body)
            case "/pause_generation":
                self.paused = True
                self._changing_since = loop_here().time()
                if body["mode"] == "abort":
                    for request in list(self.requests.values()):
                        request.abort()
            case "/continue_generation":
                self.paused = False
                for request in list(self.requests.values()):
                    request.go_on()
            case "/update_weights_from_disk":
                return await self._load(str(body["weight_version"]))
            case _:
                raise NoRoute(f"{self.url}{path} answered 404")
        return {}

    async def _load(self, version: str) -> dict[str, Any]:
        began = self._changing_since if self.paused else loop_here().time()
        if self.breaks_at_update:
            self.breaks_at_update = False
            self.kill()
            self.broke.set()
        await self._waited(self.random.expovariate(1 / self.load_s))
        if self.refuses:
            return {"success": False, "message": "the simulated server refuses weights"}
        self.weights = version
        self.had.append(version)
        found = WeightVersion.parse(version)
        self.see(Loaded(at=loop_here().time(), server=self.url, version=found, began=began))
        return {"success": True}

    async def _waited(self, seconds: float) -> None:
        await asyncio.sleep(seconds * min(self.slow, 4.0))
        await self.awake.wait()
        if not self.alive:
            raise ServerUnreachable(f"{self.url}: the simulated server is gone")


class SimulatedClient(SamplerClient):
    """The engine's client of a simulated server. Streams go by the loop's `create_connection`."""

    def __init__(self, server: SimulatedServer, *, silence: float) -> None:
        super().__init__(server.url, cast("aiohttp.ClientSession", None), silence=silence)
        self._server = server

    async def _request(
        self, method: str, path: str, data: bytes | None, timeout: float
    ) -> dict[str, Any]:
        try:
            async with asyncio.timeout(timeout):
                self._server.refuse_if_gone()
                return await self._server.control(path, orjson.loads(data) if data else {})
        except (TimeoutError, ConnectionError) as error:
            raise ServerUnreachable(f"{self.url}{path}: {error!r}") from error
