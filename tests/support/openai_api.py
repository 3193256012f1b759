"""An OpenAI-compatible API that says what a test tells it to, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"
Play = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Api:
    """`asked`: requests for text, in order."""

    url: str
    asked: list[Asked] = field(default_factory=list)


def event(**choice: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


def text(*pieces: str, **last: Any) -> bytes:
    """A whole stream of completions; `last`: of the event that ends it."""
    ended = {"finish_reason": "stop", **last}
    return STREAM + b"".join(event(text=piece) for piece in pieces) + event(text="", **ended) + DONE


def chat(*pieces: str, **last: Any) -> bytes:
    """The same of chat completions."""
    said = b"".join(event(delta={"content": piece}) for piece in pieces)
    first = event(delta={"role": "assistant", "content": None})
    return STREAM + first + said + event(delta={}, **{"finish_reason": "stop", **last}) + DONE


def usage(prompt: int, completion: int) -> bytes:
    told = {"prompt_tokens": prompt, "completion_tokens": completion}
    return b"data: " + json.dumps({"choices": [], "usage": told}).encode() + b"\n\n"


def answer(status: int, body: object, **headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = {"Content_Type": "application/json", "Content_Length": str(len(data)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in head.items())
    return f"HTTP/1.1 {status} Said\r\nConnection: close\r\n{lines}\r\n".encode() + data


def listed(*names: str, owned_by: str = "me", **more: Any) -> bytes:
    rows = [{"id": name, "object": "model", "owned_by": owned_by, **more} for name in names]
    return answer(200, {"object": "list", "data": rows})


@asynccontextmanager
async def api(*plays: bytes | Play, models: bytes | None = None) -> AsyncIterator[Api]:
    """Request number n for text is answered by `plays[n]`, then by the last one."""
    shown = models or listed("tiny")
    found = Api(url="")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
            path = lines[0].split()[1]
            data = await reader.readexactly(int(headers.get("content-length", "0")))
            if path.endswith("/models"):
                writer.write(shown)
            else:
                original = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
                found.asked.append(Asked(path=path, headers=original, body=json.loads(data)))
                play = plays[min(len(found.asked), len(plays)) - 1]
                if isinstance(play, bytes):
                    writer.write(play)
                else:
                    await play(writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        listening.close()


async def silent(writer: asyncio.StreamWriter) -> None:
    """A Play: comments alone, for five seconds."""
    for _ in range(100):
        writer.write(STREAM + b": keep-alive\n\n")
        await writer.drain()
        await asyncio.sleep(0.05)
