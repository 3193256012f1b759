"""HTTP for agents: routes, keys, streams.

A key names a trajectory. It stands in the path (`/t/KEY/v1/...`, `/t/KEY/a/AGENT/v1/...`), or as
bearer token or `x-api-key` of `/v1/...`.

Invariants
- The end of a response goes out after the engine has the call on disk.
- A stream says something at least every 3 s. An outage of the engine delays a response.
- A refusal before the first byte of a stream has its status; a later one is an event of the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import orjson
import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from ingress.config import ASIDE, POLICY, IngressTable
from ingress.dialects.chat import CHAT
from ingress.dialects.messages import MESSAGES
from ingress.dialects.responses import RESPONSES
from ingress.dialects.types import Dialect, Reply, ServerEvent
from ingress.errors import ApiError
from ingress.link import BrokenOrder, CallLost, EngineLink
from ingress.model_call import Text, prepare
from ingress.text.tails import Tails
from ingress.types import CallEnd, ModelRequest, Said
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.http_server import HttpServer, body_of

KEEP_ALIVE_SECONDS = 3.0
MOST_BODY_BYTES = 64 << 20
RETRY_HEADER = "x-stainless-retry-count"
"""Header of OpenAI's and Anthropic's clients: above 0, the request is a retry."""
AGENT_HEADER = "x-toolwright-agent"
LONGEST_AGENT = 64
"""Characters of an agent's label that are kept."""

DIALECTS = {"chat/completions": CHAT, "responses": RESPONSES, "messages": MESSAGES}
"""The APIs, by their path below a base URL."""

log = structlog.get_logger("ingress")


class IngressServer(HttpServer):
    """Async context manager."""

    def __init__(self, link: EngineLink, text: Text, table: IngressTable) -> None:
        """Every call needs a trajectory's key, so other machines may reach the address. Raises
        ListenError for an address that is not host:port."""
        self._link = link
        self._text = text
        self._table = table
        self.in_flight = 0
        """Calls that are not answered yet."""
        app = web.Application(client_max_size=MOST_BODY_BYTES)
        for base in ("/v1", "/t/{key}/v1", "/t/{key}/a/{agent}/v1"):
            for path, dialect in DIALECTS.items():
                app.router.add_post(f"{base}/{path}", self._serves(dialect))
            app.router.add_post(f"{base}/messages/count_tokens", self._count)
            app.router.add_get(f"{base}/models", self._models)
        app.router.add_get("/health", self._health)
        super().__init__(
            app,
            table.address,
            option="ingress.address",
            insecure=False,
            insecure_option="another address",
            public=True,
        )

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "healthy", "in_flight": self.in_flight})

    async def _models(self, request: web.Request) -> web.Response:
        names = dict.fromkeys((POLICY, ASIDE, *self._table.aliases))
        data = [
            {"id": name, "object": "model", "created": 0, "owned_by": "toolwright"}
            for name in names
        ]
        return web.json_response({"object": "list", "data": data})

    async def _count(self, request: web.Request) -> web.Response:
        """Tokens of an Anthropic request, as the policy's own tokenizer counts them."""
        try:
            _key(request)
            body = await _body(request)

            def count(tails: Tails) -> int:
                asked = _read(MESSAGES, body)
                return len(tails.fresh(asked.messages, asked.tools).token_ids)

            return _json({"input_tokens": await self._text.workers.run(count)})
        except ApiError as error:
            return _refusal(error, MESSAGES)
        except (ValueError, RecursionError) as error:
            return _refusal(ApiError(str(error)), MESSAGES)

    def _serves(self, dialect: Dialect) -> Handler:
        """The handler of a dialect's model calls."""

        async def handle(request: web.Request) -> web.StreamResponse:
            self.in_flight += 1
            try:
                return await self._answer(request, dialect)
            except _FAILURES as error:
                return _refusal(api_error(error), dialect)
            finally:
                self.in_flight -= 1

        return handle

    async def _answer(self, request: web.Request, dialect: Dialect) -> web.StreamResponse:
        key = _key(request)
        read = partial(_read, dialect)
        call = await prepare(read, await _body(request), self._text, self._table)
        events = call.events(self._link, key=key, agent=_agent(request), retry=_is_retry(request))
        reply = dialect.reply(call.request)
        async with aclosing(events):
            if call.request.stream:
                return await _Stream(request, reply).send(events)
            return _json(reply.whole(await _end(events)))


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
    except orjson.JSONDecodeError as error:
        raise ApiError(f"the body is not JSON: {error}") from error
    return dialect.read(found)


def _key(request: web.Request) -> str:
    """The trajectory's key. Raises ApiError without one."""
    bearer = request.headers.get(hdrs.AUTHORIZATION, "")
    scheme, _, token = bearer.partition(" ")
    found = (
        request.match_info.get("key")
        or (token.strip() if scheme.lower() == "bearer" else "")
        or request.headers.get("x-api-key", "")
    )
    if not found or not found.isascii():
        raise ApiError(
            "the request has no key: send the trajectory's as bearer token, as x-api-key, or in "
            "the path",
            status=401,
            kind="authentication_error",
            code="invalid_api_key",
        )
    return found


def _agent(request: web.Request) -> str:
    """Label of the agent; "" without one."""
    found = request.match_info.get("agent", "") or request.headers.get(AGENT_HEADER, "")
    return found[:LONGEST_AGENT].encode("utf-8", "replace").decode()


def _is_retry(request: web.Request) -> bool:
    count = request.headers.get(RETRY_HEADER, "0")
    return count.isdecimal() and int(count[:9]) > 0


async def _end(events: AsyncGenerator[Said | CallEnd]) -> CallEnd:
    """The last event."""
    async for event in events:
        if isinstance(event, CallEnd):
            return event
    raise BrokenOrder("a call ended without its end")


class _Stream:
    """One response as server-sent events."""

    def __init__(self, request: web.Request, reply: Reply) -> None:
        self._request = request
        self._reply = reply
        self._response: web.StreamResponse | None = None

    async def send(self, events: AsyncGenerator[Said | CallEnd]) -> web.StreamResponse:
        """Sends events until the end. Raises the call's errors before the first byte."""
        try:
            async for event in _paced(events):
                response = await self._begun()
                if event is None:
                    await response.write(b": keep-alive\n\n")
                elif isinstance(event, CallEnd):
                    await response.write(_lines(self._reply.end(event)))
                else:
                    await response.write(_lines(self._reply.said(event)))
        except ConnectionResetError:
            log.debug("client left")
        except _FAILURES as error:
            if self._response is None:
                raise
            with suppress(ConnectionResetError):
                await self._response.write(_lines(self._reply.failed(api_error(error))))
        return await self._begun()

    async def _begun(self) -> web.StreamResponse:
        if self._response is None:
            self._response = web.StreamResponse(
                headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
            )
            await self._response.prepare(self._request)
            await self._response.write(_lines(self._reply.begin()))
        return self._response


async def _paced(
    events: AsyncGenerator[Said | CallEnd],
) -> AsyncGenerator[Said | CallEnd | None]:
    """The events, and None whenever there has been none for `KEEP_ALIVE_SECONDS`."""
    waiting = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            done, _ = await asyncio.wait((waiting,), timeout=KEEP_ALIVE_SECONDS)
            if not done:
                yield None
                continue
            event = waiting.result()
            if event is None:
                return
            yield event
            waiting = asyncio.ensure_future(anext(events, None))
    finally:
        waiting.cancel()
        await asyncio.wait((waiting,))


_FAILURES = (ApiError, ServiceError, TransportError, CallLost, BrokenOrder)


def api_error(error: Exception) -> ApiError:
    """A call's failure as the client sees it."""
    if isinstance(error, ApiError):
        return error
    if not isinstance(error, ServiceError):
        log.warning("call failed", error=str(error))
        return ApiError(str(error), status=500, kind="server_error")
    match error.reason:
        case reasons.ERROR_REASON_SESSION_NOT_FOUND:
            return ApiError(
                "no trajectory has this key",
                status=401,
                kind="authentication_error",
                code="invalid_api_key",
            )
        case reasons.ERROR_REASON_SESSION_CLOSED:
            return ApiError(error.message, status=410, code="trajectory_ended")
        case reasons.ERROR_REASON_CONTEXT_FULL:
            # Agents look for the code, or for OpenAI's own words.
            return ApiError(
                f"This model's maximum context length is exceeded: {error.message}",
                code="context_length_exceeded",
                param="messages",
            )
        case reasons.ERROR_REASON_TOO_MANY_CALLS:
            return ApiError(
                error.message,
                status=429,
                kind="rate_limit_error",
                code="too_many_calls",
                retry_after=1.0,
            )
        case reasons.ERROR_REASON_INVALID_REQUEST:
            return ApiError(error.message)
    log.warning("call failed", error=str(error))
    return ApiError(str(error), status=500, kind="server_error")


def _refusal(error: ApiError, dialect: Dialect) -> web.Response:
    response = _json(dialect.error(error), error.status)
    if error.retry_after is not None:
        response.headers["Retry-After"] = f"{error.retry_after:.0f}"
    return response


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(
        body=orjson.dumps(body), status=status, headers={"Content-Type": "application/json"}
    )


def _lines(events: list[ServerEvent]) -> bytes:
    """Server-sent events as they are written."""
    found = []
    for name, data in events:
        text = data.encode() if isinstance(data, str) else orjson.dumps(data)
        found.append((b"event: " + name.encode() + b"\n" if name else b"") + b"data: " + text)
    return b"".join(one + b"\n\n" for one in found)
