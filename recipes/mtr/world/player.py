"""A scripted model behind an OpenAI-compatible endpoint: it makes the tools, and plays them.

    python -m toolwright.script world/player.py --listen 127.0.0.1:30117

A part of the demonstration, so that `simulated:` has a model to ask without weights. What it is
asked decides which role it plays (roles.py); asked anything else, a question closed-book say, it
says that it does not know, for it knows facts and no language.

Invariants
- A reply depends on nothing but the request's messages: it keeps no state.
- It listens on loopback, and a request has at most MOST bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from aiohttp import web

from tasks.worlds.encyclopedia import Encyclopedia
from tasks.worlds.questions import ENCYCLOPEDIA, SHAPE
from toolwright.rpc.auth import Tokens
from toolwright.rpc.http_middleware import ruled
from toolwright.rpc.http_rule import HttpRule

from .roles import UNKNOWN, Actor, tool_set

MODEL = "player"
MOST = 1 << 20
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MAKES, _PLAYS, _ARGUMENTS = "Question:\n", "Tool:\n", "\n\nArguments:\n"
_CLOSED = f"<think>I do not know.</think><answer>{UNKNOWN}</answer>"


class Player:
    """Both roles. `requests`: how many it was asked, by role."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self.requests = {"maker": 0, "actor": 0, "other": 0}

    def reply(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The text of the next message, whatever the messages are."""
        asked = [one.get("content") for one in messages if one.get("role") == "user"]
        first = asked[0] if asked and isinstance(asked[0], str) else ""
        if first.startswith(_MAKES):
            self.requests["maker"] += 1
            return json.dumps(tool_set(first.removeprefix(_MAKES)))
        call = _call(first) if first.startswith(_PLAYS) else None
        if call is None:
            self.requests["other"] += 1
            return _CLOSED
        self.requests["actor"] += 1
        say = self._actor.observation if len(asked) > 1 else self._actor.slip
        return json.dumps(say(*call))

    async def complete(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
            messages, streams = body["messages"], body.get("stream")
            text = self.reply([one for one in messages if isinstance(one, Mapping)])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            told = {"error": {"message": f"no chat request: {error!r}", "code": 400}}
            return web.json_response(told, status=400)
        said = {"role": "assistant", "content": text}
        if streams is True:
            lines = (_completion("chat.completion.chunk", "delta", said), "[DONE]")
            events = "".join(f"data: {one}\n\n" for one in lines)
            return web.Response(text=events, content_type="text/event-stream")
        answer = _completion("chat.completion", "message", said)
        return web.Response(text=answer, content_type="application/json")

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response(self.requests)


def application() -> web.Application:
    """The server, over the encyclopedia that the policy is asked about."""
    player = Player(Actor(Encyclopedia(ENCYCLOPEDIA, SHAPE)))
    app = web.Application(client_max_size=MOST, middlewares=[ruled(HttpRule(Tokens()))])
    app.add_routes(
        [
            web.post("/v1/chat/completions", player.complete),
            web.get("/v1/models", player.models),
            web.get("/health", player.health),
        ]
    )
    return app


def _completion(kind: str, said_as: str, said: Mapping[str, str]) -> str:
    """The body of an answer, or of the only event of a stream."""
    words = len(said["content"].split())
    body = {
        "id": "played",
        "object": kind,
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "finish_reason": "stop", said_as: said}],
        "usage": {"prompt_tokens": 0, "completion_tokens": words, "total_tokens": words},
    }
    return json.dumps(body)


def _call(text: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Tool and arguments of what ToolActor is asked, (toolsvc) sources.simulated.actor; None where
    it is something else."""
    head, found, tail = text.rpartition(_ARGUMENTS)
    try:
        tool, _ = json.JSONDecoder().raw_decode(head.removeprefix(_PLAYS))
        arguments = json.loads(tail)
    except (ValueError, RecursionError):
        return None
    fits = found and isinstance(tool, Mapping) and isinstance(arguments, Mapping)
    return (tool, arguments) if fits else None


def main(*, listen: Annotated[str, "HOST:PORT, on loopback"] = "127.0.0.1:30117") -> None:
    """Play the tools of the demonstration."""
    host, _, port = listen.rpartition(":")
    if host.strip("[]") not in LOOPBACK or not port.isdecimal():
        sys.exit(f"--listen {listen}: write 127.0.0.1:PORT, for the player knows no tokens")
    web.run_app(application(), host=host.strip("[]"), port=int(port), print=None, access_log=None)
