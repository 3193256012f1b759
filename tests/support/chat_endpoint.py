"""An OpenAI-compatible endpoint on loopback, whose answers a test writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.support.web import serving

Say = Callable[[dict[str, Any]], str]


class ChatEndpoint:
    """Records every request; `say` writes the answers, `faults` are given first, one a request."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.faults: list[web.Response] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.arrived = asyncio.Event()
        """The first request is here."""
        self.open = asyncio.Event()
        """Nothing is answered before it is set."""
        self.open.set()
        self.longest: int | None = None
        """Characters after which an answer is cut off; None = of any length."""
        self.url = ""

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.keys.append(request.headers.get("Authorization", ""))
        self.arrived.set()
        await self.open.wait()
        if self.faults:
            return self.faults.pop(0)
        text = self.say(body)
        shown = text[: self.longest]
        return web.json_response(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop" if shown == text else "length",
                        "message": {"role": "assistant", "content": shown},
                    }
                ],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            }
        )


def fault(status: int, message: str = "", **headers: str) -> web.Response:
    text = json.dumps({"error": {"message": message or f"status {status}"}})
    return web.Response(status=status, text=text, content_type="application/json", headers=headers)


@asynccontextmanager
async def chat_endpoint(say: Say) -> AsyncIterator[ChatEndpoint]:
    endpoint = ChatEndpoint(say)
    async with serving(web.post("/v1/chat/completions", endpoint.complete)) as port:
        endpoint.url = f"http://127.0.0.1:{port}/v1"
        try:
            yield endpoint
        finally:
            endpoint.open.set()
