"""Streams of a simulated sampler: connections, and requests of /generate that stream on them.

Invariants
- A request has a new answer, whatever its prompt.
- The history gets what was sent, with the weights that the server had then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import copy_context
from random import Random
from typing import Any

import orjson

from bench.history.events import AnyEvent, Sampled
from bench.simulate.neighbours.aborts import AbortWatch
from bench.simulate.neighbours.protocol import SEPARATOR
from bench.simulate.schedule import Workload
from bench.simulate.virtual.loop import loop_here, owner_here
from bench.simulate.workload import END_ID, STOP_ID, TEXT_STOP, ids_of
from toolwright.types import WeightVersion, ids

FOREIGN = "default"
"""Name that a server gives to weights of no run."""
(SEPARATOR_ID,) = ids_of(SEPARATOR)
CALLS = 0.6
"""Share of actions that end in a call."""
JUNK = 12
"""Tokens after a stop that the server does not look for."""

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


See = Callable[[AnyEvent], None]


class StreamingServer:
    """The part of a server that its streams see."""

    def __init__(self, url: str, workload: Workload, random: Random, see: See) -> None:
        self.url = url
        self.workload = workload
        self.random = random
        self.see = see
        self.alive = True
        self.awake = asyncio.Event()
        """Clear while the server hangs."""
        self.awake.set()
        self.breaks = 0.0
        """Share of chunks after which their stream breaks."""
        self.slow = 1.0
        self.paused = False
        self.weights = FOREIGN
        self.requests: dict[str, StreamRequest] = {}
        self.connections: dict[Connection, None] = {}
        self.aborts = AbortWatch(url, see)

    def abort(self, body: Mapping[str, Any]) -> None:
        """Ends the request `rid`, or all."""
        for rid in [body["rid"]] if "rid" in body else list(self.requests):
            if rid in self.requests:
                self.requests[rid].abort()


class Connection(asyncio.Transport):
    """One connection, as its client's transport. A client that is dead hears nothing of it."""

    def __init__(self, server: StreamingServer, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.client = owner_here()
        self._context = copy_context()
        self._server = server
        self._protocol = protocol
        self._read = b""
        self._request: StreamRequest | None = None
        self._closed = False
        server.connections[self] = None
        protocol.connection_made(self)

    @property
    def worker(self) -> str:
        """Name of the worker that is the client; "" = the client is the engine."""
        name = "" if self.client is None else self.client.name
        return name.removeprefix("worker ") if name.startswith("worker ") else ""

    @property
    def stray(self) -> bool:
        """Whether the client is a stray worker."""
        return self.client is not None and self.client.stray

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Takes whole requests, one after the other."""
        self._read += bytes(data)
        head, found, body = self._read.partition(b"\r\n\r\n")
        length = int(head.rpartition(b"Content-Length: ")[2] or 0) if found else 0
        if not found or len(body) < length:
            return
        self._read = body[length:]
        asked = orjson.loads(body[:length])
        if "input_ids" not in asked:
            self._server.aborts.sent(asked.get("rid", ""))
        loop = loop_here()
        when = loop.time() + self._server.random.uniform(0.0005, 0.004)
        loop.call_at(when, self._serve, asked, context=loop.world)

    def _serve(self, body: dict[str, Any]) -> None:
        if self._closed:
            return
        if "input_ids" in body:
            self.send(_HEAD)
            self._request = StreamRequest(self._server, body, self)
        else:
            self._server.abort(body)
            self.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def send(self, data: bytes) -> None:
        """In a read of the client's socket."""
        if not self._closed and (self.client is None or self.client.alive):
            self._context.run(self._protocol.data_received, data)

    def event(self, payload: bytes, *, last: bool) -> None:
        """One event of a stream; after the last one the response ends."""
        data = b"data: " + payload + b"\n\n"
        if last:
            data += b"data: [DONE]\n\n"
        self.send(b"%x\r\n%s\r\n%s" % (len(data), data, b"0\r\n\r\n" if last else b""))

    def close(self) -> None:
        """The client hangs up."""
        self.lose(None)

    def is_closing(self) -> bool:
        return self._closed

    def lose(self, error: Exception | None) -> None:
        """The connection is gone; its request ends at the server."""
        if self._closed:
            return
        self._closed = True
        self._server.connections.pop(self, None)
        alive = self.client is None or self.client.alive
        if self._request is not None:
            if alive and not self.stray and self._server.alive and not self._request.is_over:
                self._server.aborts.lost(self._request.rid, self._request.attempt)
            self._request.over()
        if alive:
            loop_here().call_soon(self._protocol.connection_lost, error, context=self._context)


class StreamRequest:
    """One request of /generate while it streams."""

    def __init__(
        self, server: StreamingServer, body: Mapping[str, Any], connection: Connection
    ) -> None:
        self._server = server
        self._connection = connection
        self.rid: str = body["rid"]
        self.attempt: str = body.get("routing_key", "")
        self._prompt: list[int] = body["input_ids"]
        self._most: int = body["sampling_params"]["max_new_tokens"]
        self._tops: int = body.get("top_logprobs_num", 0)
        self._plan, self._finish = self._drawn()
        self._sent: list[int] = []
        self._logprobs: list[float] = []
        self._spans: list[tuple[str, int, int]] = []
        self._ticking: asyncio.TimerHandle | None = None
        self._over = False
        self._began = loop_here().time()
        server.requests[self.rid] = self
        self.go_on()

    def _drawn(self) -> tuple[list[int], dict[str, Any]]:
        dice, workload = self._server.random, self._server.workload
        body = [dice.randint(64, 89) for _ in range(dice.randint(*workload.tokens))]
        finish: dict[str, Any] = {"type": "stop", "matched": END_ID}
        if dice.random() >= CALLS or not workload.calls:
            return self._within([*body, *ids_of("<answer>42</answer>"), END_ID], finish)
        for _ in range(dice.randint(0, workload.calls - 1)):
            body[dice.randrange(len(body))] = SEPARATOR_ID
        if workload.text_stops:
            junk = [dice.randint(64, 89) for _ in range(dice.randint(0, JUNK))]
            plan = [*body, *ids_of(TEXT_STOP), *junk, END_ID]
        else:
            plan = [*body, STOP_ID]
            finish = {"type": "stop", "matched": STOP_ID}
        return self._within(plan, finish)

    def _within(self, plan: list[int], finish: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
        if len(plan) > self._most:
            return plan[: self._most], {"type": "length", "length": self._most}
        return plan, finish

    @property
    def length(self) -> int:
        """Tokens that it holds."""
        return len(self._prompt) + len(self._sent)

    @property
    def is_over(self) -> bool:
        return self._over

    def go_on(self) -> None:
        """The next chunk comes after its time."""
        loop, server = loop_here(), self._server
        if self._ticking is not None or server.paused or self._over:
            return
        pause = server.workload.interval * server.workload.token_s * server.slow
        when = loop.time() + pause * server.random.uniform(0.7, 1.3)
        self._ticking = loop.call_at(when, self._tick, context=loop.world)

    def abort(self) -> None:
        if not self._over:
            self._send(0, {"type": "abort", "message": "aborted"})

    def _tick(self) -> None:
        self._ticking = None
        if not self._server.awake.is_set():
            loop = loop_here()
            self._ticking = loop.call_at(loop.time() + 1.0, self._tick, context=loop.world)
            return
        left = len(self._plan) - len(self._sent)
        count = min(self._server.workload.interval, left)
        self._send(count, self._finish if count == left else None)
        if self._server.random.random() < self._server.breaks:
            self._connection.lose(ConnectionResetError("the connection broke"))
        self.go_on()

    def _send(self, count: int, finish: Mapping[str, Any] | None) -> None:
        """One event: so many tokens of the plan."""
        server, start = self._server, len(self._sent)
        fresh = self._plan[start : start + count]
        logprobs = [-server.random.randint(1, 4096) / 1024 for _ in fresh]
        if fresh:
            self._sent += fresh
            self._logprobs += logprobs
            self._add_span(server.weights, start, len(self._sent))
        if not server.workload.incremental:
            fresh, logprobs = self._sent, self._logprobs
        meta: dict[str, Any] = {
            "id": self.rid,
            "finish_reason": finish,
            "prompt_tokens": len(self._prompt),
            "completion_tokens": len(self._sent),
            "weight_version": server.weights,
            "output_token_logprobs": [
                [value, token, None] for value, token in zip(logprobs, fresh, strict=True)
            ],
        }
        if server.workload.cache_tokens:
            # The cache loses most prefixes, by one length or another.
            meta["cached_tokens"] = len(self._prompt) * (len(self._plan) % 4) // 4
            meta["num_retractions"] = int(len(self._plan) % 16 == 0)
        if finish is not None:
            meta["weight_versions"] = [
                {"version": name, "start": first, "end": end} for name, first, end in self._spans
            ]
        if self._tops:
            meta["output_top_logprobs"] = [
                [[value - number, token, None] for number in range(self._tops)]
                for value, token in zip(logprobs, fresh, strict=True)
            ]
        self._connection.event(
            orjson.dumps({"output_ids": fresh, "meta_info": meta}), last=finish is not None
        )
        if finish is not None:
            self.over()

    def _add_span(self, weights: str, start: int, end: int) -> None:
        if self._spans and self._spans[-1][0] == weights:
            self._spans[-1] = (weights, self._spans[-1][1], end)
        else:
            self._spans.append((weights, start, end))

    def over(self) -> None:
        """Once: the history gets what was sent, a part for each version of the weights."""
        if self._over:
            return
        self._over = True
        self._server.requests.pop(self.rid, None)
        if self._ticking is not None:
            self._ticking.cancel()
        now = loop_here().time()
        for weights, start, end in self._spans:
            if weights != FOREIGN and not self._connection.stray:
                self._server.see(
                    Sampled(
                        at=now,
                        attempt=self.attempt,
                        server=self._server.url,
                        prompt=ids([*self._prompt, *self._sent[:start]]),
                        token_ids=ids(self._sent[start:end]),
                        version=WeightVersion.parse(weights),
                        began=self._began,
                        worker=self._connection.worker,
                    )
                )
