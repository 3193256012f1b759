"""An `EpisodeOffer` over HTTP and WebSockets, as OpenEnv's own servers speak.

`/ws` holds an episode for a connection, or one that `openenv/session/create` made. `/mcp` is
JSON-RPC. As there, `/reset` and `/step` have no episode that outlives the request.
"""

from __future__ import annotations

import json
from typing import Any

from aiohttp import WSMsgType, web

from toolsvc.edge.client import Client
from toolsvc.sources.openenv import answers
from toolsvc.sources.openenv.answers import ToolAction, UnfitMessage, read_action, read_reset
from toolsvc.sources.openenv.offer import FAILURES, EpisodeOffer, Full, NoSuchTool, OfferedEpisode
from toolwright.process.stop_signals import stop_event
from toolwright.rpc.errors import ServiceError
from toolwright.rpc.http_server import HttpServer, body_of, refused

MOST_BYTES = 4 << 20
"""Largest message or body, in bytes."""
PARSE_ERROR, NO_REQUEST, NO_METHOD, NO_PARAMS, SERVER_ERROR = -32700, -32600, -32601, -32602, -32000
"""Codes of JSON-RPC."""


async def serve_openenv(client: Client, listen: str, *, insecure: bool) -> None:
    """Serves until SIGTERM. Raises ListenError for an address that needs a token."""
    stop = stop_event()
    async with client:
        service = await client.list_tools()
        offer = EpisodeOffer(client, service.tools)
        server = HttpServer(
            OpenEnvRoutes(offer, service.service).app(),
            listen,
            option="--listen",
            insecure=insecure,
            insecure_option="--insecure",
        )
        try:
            async with server:
                address = f"{listen.rpartition(':')[0]}:{server.port}"
                print(f"serving {', '.join(t.name for t in offer.tools)} on {address}", flush=True)
                await stop.wait()
        finally:
            await offer.close()


class OpenEnvRoutes:
    """Answers to requests."""

    def __init__(self, offer: EpisodeOffer, service: str) -> None:
        self._offer = offer
        self._name = service or "toolwright"

    def app(self) -> web.Application:
        names = ", ".join(tool.name for tool in self._offer.tools)
        described = {"name": self._name, "description": f"Tools: {names}", "version": "1"}
        schemas = {
            "action": answers.ACTION,
            "observation": answers.OBSERVATION,
            "state": answers.STATE,
        }
        app = web.Application(client_max_size=MOST_BYTES)
        constants: dict[str, dict[str, Any]] = {
            "/health": {"status": "healthy"},
            "/metadata": described,
            "/schema": schemas,
            "/state": {"episode_id": None, "step_count": 0},
            "/openapi.json": answers.openapi(self._name),
        }
        for path, answer in constants.items():
            app.router.add_get(path, _constant(answer))
        app.router.add_post("/reset", self._reset)
        app.router.add_post("/step", self._step)
        app.router.add_post("/mcp", self._mcp)
        app.router.add_get("/ws", self._ws)
        return app

    async def _reset(self, request: web.Request) -> web.Response:
        return web.json_response(answers.listed(self._offer.tools))

    async def _step(self, request: web.Request) -> web.Response:
        episode = None
        try:
            body = _object(await body_of(request))
            action = read_action(body.get("action"))
            episode = await self._offer.open()
            return web.json_response(await episode.step(action))
        except UnfitMessage as error:
            return web.json_response({"detail": error.faults}, status=422)
        except Full as error:
            return refused(503, str(error), retry_after=1.0)
        except FAILURES as error:
            return refused(500, str(error))
        finally:
            if episode is not None:
                await self._offer.end(episode)

    async def _mcp(self, request: web.Request) -> web.Response:
        try:
            message = _object(await body_of(request))
        except UnfitMessage as error:
            return web.json_response(_rpc_error(None, PARSE_ERROR, str(error)))
        return web.json_response(await self._rpc(message, None))

    async def _ws(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=MOST_BYTES, heartbeat=60.0)
        await socket.prepare(request)
        wanted = request.query.get("session_id")
        episode = self._offer.find(wanted) if wanted else None
        if wanted and (episode is None or episode.attached):
            await socket.send_json(_error("SESSION_ERROR", f"no free session {wanted!r:.80}"))
            await socket.close()
            return socket
        try:
            episode = episode or await self._offer.open()
        except Full as error:
            await socket.send_json(_error("CAPACITY_REACHED", str(error)))
            await socket.close()
            return socket
        episode.attached = True
        try:
            async for message in socket:
                if message.type is not WSMsgType.TEXT:
                    break
                answer = await self._answer(message.data, episode)
                if answer is None:
                    break
                await socket.send_json(answer)
        finally:
            episode.attached = False
            if not wanted:
                await self._offer.end(episode)
        await socket.close()
        return socket

    async def _answer(self, text: str, episode: OfferedEpisode) -> dict[str, Any] | None:
        """Answer to a message; None for its end."""
        try:
            message = _object(text)
            kind, data = message.get("type"), message.get("data", {})
            if kind == "close":
                return None
            if kind == "state":
                return {"type": "state", "data": episode.state()}
            if kind == "mcp":
                return {"type": "mcp", "data": await self._rpc(data, episode)}
            if kind == "reset":
                return {"type": "observation", "data": await episode.reset(read_reset(data))}
            if kind == "step":
                return {"type": "observation", "data": await episode.step(read_action(data))}
        except UnfitMessage as error:
            return _error("VALIDATION_ERROR", str(error), errors=error.faults)
        except ServiceError as error:
            full = error.retry_after is not None
            return _error("CAPACITY_REACHED" if full else "EXECUTION_ERROR", str(error))
        except FAILURES as error:
            return _error("EXECUTION_ERROR", str(error))
        return _error("UNKNOWN_TYPE", f"no message has type {kind!r:.80}")

    async def _rpc(self, message: Any, own: OfferedEpisode | None) -> dict[str, Any]:
        """Answer to a request of JSON-RPC. own: episode of its connection."""
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            return _rpc_error(None, NO_REQUEST, "write jsonrpc, method, params and id")
        number, method, params = message.get("id"), message["method"], message.get("params", {})
        if not isinstance(params, dict):
            return _rpc_error(number, NO_PARAMS, "params: write an object")
        wanted = params.get("session_id")
        episode = own or self._offer.find(wanted)
        if wanted and episode is None:
            return _rpc_error(number, NO_PARAMS, f"no session {wanted!r:.80}")
        try:
            result = await self._do(method, params, episode)
        except UnfitMessage as error:
            return _rpc_error(number, NO_PARAMS, str(error))
        except (Full, *FAILURES) as error:
            code = NO_PARAMS if isinstance(error, NoSuchTool) else SERVER_ERROR
            return _rpc_error(number, code, str(error))
        if result is None:
            return _rpc_error(number, NO_METHOD, f"no method {method!r:.80}")
        return {"jsonrpc": "2.0", "id": number, "result": result}

    async def _do(
        self, method: str, params: dict[str, Any], episode: OfferedEpisode | None
    ) -> dict[str, Any] | None:
        """Result of a method; None for an unknown one."""
        if method == "tools/list":
            return {"tools": answers.tools_of(self._offer.tools, "inputSchema")}
        if method == "openenv/session/create":
            made = episode or await self._offer.open()
            made.check_open()
            return {"session_id": made.id}
        if method == "openenv/session/close":
            if episode is None:
                raise UnfitMessage("session_id", "write the id of a session")
            await self._offer.end(episode)
            return {"session_id": episode.id, "closed": True}
        if method != "tools/call":
            return None
        action = read_action(
            {"tool_name": params.get("name"), "arguments": params.get("arguments", {})}
        )
        return await self._called(action, episode)

    async def _called(self, action: ToolAction, episode: OfferedEpisode | None) -> dict[str, Any]:
        """Result of a call, in an episode of its own if it has none."""
        used = episode or await self._offer.open()
        try:
            told = await used.step(action)
        finally:
            if episode is None:
                await self._offer.end(used)
        seen = told["observation"]
        return {
            "data": seen["result"],
            "is_error": seen["error"] is not None,
            "reward": told["reward"],
            "done": told["done"],
        }


def _constant(answer: dict[str, Any]) -> Any:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response(answer)

    return handler


def _object(text: str | bytes) -> dict[str, Any]:
    """Raises UnfitMessage for anything but an object of JSON."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnfitMessage("message", f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UnfitMessage("message", "write an object")
    return found


def _error(code: str, message: str, **more: Any) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code, **more}}


def _rpc_error(number: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}
