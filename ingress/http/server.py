"""HTTP for agents: routes, keys, streams.

A key names a trajectory. It stands in the path (`/t/KEY/v1/...`, `/t/KEY/a/AGENT/v1/...`), or as
bearer token or `x-api-key` of `/v1/...`.

Invariants
- A key is checked before anything of a body is read.
- The end of a response goes out after the engine has the call on disk.
- A refusal before the first byte of a stream has its status; a later one is an event of the stream.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from ingress.body_room import BodyRoom
from ingress.config import ASIDE, POLICY, IngressTable
from ingress.dialects.chat import CHAT
from ingress.dialects.completions import COMPLETIONS
from ingress.dialects.messages import MESSAGES
from ingress.dialects.responses import RESPONSES
from ingress.dialects.types import Dialect
from ingress.errors import ApiError
from ingress.http.drivers import DriverRoutes
from ingress.http.event_stream import EventStream
from ingress.http.keys import CALLS, REPORT, KeyChecks, Uses, agent_of, key_of
from ingress.http.refusals import (
    FAILURES,
    api_error,
    json_response,
    refusal,
    unexpected,
)
from ingress.http.reports import end_of, read_object, report_of
from ingress.link import BrokenOrder, EngineLink
from ingress.model_call import Text, prepare
from ingress.text.tails import Tails
from ingress.types import Begun, CallEnd, ModelRequest
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.rpc.http_server import HttpServer, body_of

ENGINE_SECONDS = 60.0
"""Silence of the engine after which the server is not healthy, in seconds."""
MOST_BODY_BYTES = 64 << 20
MOST_BODIES_BYTES = 2 << 30
"""Bytes of the bodies of all calls in flight; further requests wait before their bodies are read.
"""
_LONG_INTEGER = re.compile(rb"\d{19}")
RETRY_HEADER = "x-stainless-retry-count"
"""Header of OpenAI's and Anthropic's clients: above 0, the request is a retry."""

DIALECTS = {
    "chat/completions": CHAT,
    "completions": COMPLETIONS,
    "responses": RESPONSES,
    "messages": MESSAGES,
}
"""The APIs, by their path below a base URL."""


class Caller(NamedTuple):
    """A key that was checked."""

    key: str
    use: pb.KeyUse.ValueType


Answer = Callable[[web.Request, Dialect, Caller], Awaitable[web.StreamResponse]]


class IngressServer(HttpServer):
    """Async context manager."""

    def __init__(
        self, link: EngineLink, text: Text, table: IngressTable, *, shared: bool = False
    ) -> None:
        """Every call needs a trajectory's key, so other machines may reach the address. shared:
        other processes have the same one. Raises ListenError for an address that is not host:port.
        """
        self._link = link
        self._text = text
        self._table = table
        self._keys = KeyChecks(link)
        self._bodies = BodyRoom(MOST_BODIES_BYTES)
        self.in_flight = 0
        """Calls that are not answered yet."""
        text.metrics.look_at(lambda: self.in_flight)
        app = web.Application(
            client_max_size=MOST_BODY_BYTES, middlewares=[self._counted, _in_shape]
        )
        for base in ("/v1", "/t/{key}/v1", "/t/{key}/a/{agent}/v1"):
            for path, dialect in DIALECTS.items():
                app.router.add_post(f"{base}/{path}", self._guarded(self._answer, dialect))
            app.router.add_post(
                f"{base}/messages/count_tokens", self._guarded(self._count, MESSAGES)
            )
            app.router.add_get(f"{base}/models", self._models)
            app.router.add_post(f"{base}/reward", self._guarded(self._reward, CHAT, (REPORT,)))
            app.router.add_post(f"{base}/end", self._guarded(self._end, CHAT, (CALLS, REPORT)))
        drivers = DriverRoutes(link)
        app.router.add_post("/v1/trajectories", _driven(drivers, drivers.open))
        app.router.add_post("/v1/trajectories/take", _driven(drivers, drivers.take))
        app.router.add_post("/v1/trajectories/end", _driven(drivers, drivers.end))
        app.router.add_get("/health", self._health)
        super().__init__(
            app,
            table.address,
            option="ingress.address",
            insecure=False,
            insecure_option="another address",
            reuse_port=shared,
            public=True,
            refuse=_refuse,
        )

    async def _health(self, request: web.Request) -> web.Response:
        """503 once the engine has been silent for `ENGINE_SECONDS`: before, it may be starting."""
        silent = await self._link.silent_s()
        healthy = silent < ENGINE_SECONDS
        found = {
            "status": "healthy" if healthy else "unhealthy",
            "engine": "answers" if silent < 1 else f"has been silent for {silent:.0f} s",
            "in_flight": self.in_flight,
            "pid": os.getpid(),
        }
        return web.json_response(found, status=200 if healthy else 503)

    async def _models(self, request: web.Request) -> web.Response:
        names = dict.fromkeys((POLICY, ASIDE, *self._table.aliases))
        data = [
            {"id": name, "object": "model", "created": 0, "owned_by": "toolwright"}
            for name in names
        ]
        return web.json_response({"object": "list", "data": data})

    async def _reward(self, request: web.Request, _: Dialect, caller: Caller) -> web.Response:
        """Takes a reward: of the trajectory, or of the response that the body names."""
        await self._link.report(report_of(read_object(await _body(request)), caller.key))
        return json_response({"status": "recorded"})

    async def _end(self, request: web.Request, _: Dialect, caller: Caller) -> web.Response:
        """Ends the trajectory. The first end counts."""
        body, by_agent = read_object(await _body(request)), caller.use == CALLS
        calls = await self._link.end(end_of(body, caller.key, by_agent=by_agent))
        return json_response({"status": "ended", "calls": calls})

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        resource = request.match_info.route.resource
        route = resource.canonical.rpartition("/v1/")[2] if resource else "unknown"
        self._text.metrics.requests.labels(route, response.status).inc()
        return response

    def _guarded(self, answer: Answer, dialect: Dialect, uses: Uses = (CALLS,)) -> Handler:
        """The handler of a route: it checks the key before `answer` reads the body."""

        async def handle(request: web.Request) -> web.StreamResponse:
            self.in_flight += 1
            try:
                key = key_of(request)
                use = await self._keys.check(key, uses)
                size = request.content_length
                with self._keys.request(key):
                    async with self._bodies.of(MOST_BODY_BYTES if size is None else size):
                        return await answer(request, dialect, Caller(key, use))
            except FAILURES as error:
                return refusal(api_error(error), dialect.error)
            except web.HTTPException:
                raise
            except Exception as error:  # noqa: BLE001 (logged)
                return refusal(unexpected(error), dialect.error)
            finally:
                self.in_flight -= 1

        return handle

    async def _count(self, request: web.Request, dialect: Dialect, caller: Caller) -> web.Response:
        """Tokens of a request, as the policy's own tokenizer counts them."""
        body = await _body(request)

        def count(tails: Tails) -> int:
            asked = _read(dialect, body)
            return len(tails.fresh(asked.messages, asked.tools).token_ids)

        try:
            tokens = await self._text.workers.run(count, caller.key)
        except (ValueError, RecursionError) as error:
            raise ApiError(str(error)) from error
        return json_response({"input_tokens": tokens})

    async def _answer(
        self, request: web.Request, dialect: Dialect, caller: Caller
    ) -> web.StreamResponse:
        read = partial(_read, dialect)
        key = caller.key
        body = await _body(request)
        call = await prepare(read, body, self._text, self._table, self._link, key=key)
        events = call.events(self._link, agent=agent_of(request), retry=_is_retry(request))
        reply = dialect.reply(call.request)
        async with aclosing(events):
            if call.request.stream:
                return await EventStream(request, reply).send(events)
            async for event in events:
                if isinstance(event, Begun):
                    reply.begin(event.response)
                elif isinstance(event, CallEnd):
                    return json_response(reply.whole(event))
        raise BrokenOrder("a call ended without its end")


def _driven(drivers: DriverRoutes, answer: Callable[[Any], Awaitable[Any]]) -> Handler:
    """The handler of a driver's route."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            drivers.check(request)
            return json_response(await answer(read_object(await _body(request))))
        except FAILURES as error:
            return refusal(api_error(error), CHAT.error)
        except web.HTTPException:
            raise
        except Exception as error:  # noqa: BLE001 (logged)
            return refusal(unexpected(error), CHAT.error)

    return handle


def _refuse(request: web.Request, status: int, why: str) -> web.Response:
    """A refusal of the server itself, in the shape of the path's API."""
    shape = MESSAGES if "/messages" in request.path else CHAT
    kind = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
    error = ApiError(why, status=status, kind=kind.get(status, "invalid_request_error"))
    return refusal(error, shape.error)


@web.middleware
async def _in_shape(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        why = f"{request.method} {request.path[:200]}: {error.reason}"
        return _refuse(request, error.status, why)


async def _body(request: web.Request) -> bytes:
    """The body of a request. Raises ApiError."""
    try:
        return await body_of(request)
    except web.HTTPException as error:
        why = f"the body cannot be read: {error.reason}"
        raise ApiError(why, status=error.status) from error


def _read(dialect: Dialect, body: bytes) -> ModelRequest:
    """The request of a body. Raises ApiError."""
    try:
        found = orjson.loads(body)
        if _LONG_INTEGER.search(body):
            found = json.loads(body)  # orjson rounds integers beyond 64 bits
    except ValueError as error:
        raise ApiError(f"the body is not JSON: {error}") from error
    return dialect.read(found)


def _is_retry(request: web.Request) -> bool:
    count = request.headers.get(RETRY_HEADER, "0")
    return count.isdecimal() and int(count[:9]) > 0
