"""One client session with an MCP server, in a task of its own: the task that entered the SDK's
scopes must leave them, and a session's calls come from many tasks.

Invariants
- Connects by the `initialize` handshake, since that makes a session; protocol 2026-07-28 has none.
- A server that closed its side, or died, is noticed at once, also between calls: `lost` says why.
- `close` ends the session and, for a stdio server, its process and all that it started.
- An answer that is not MCP is an error of its request at once, in one sentence. Other lines that
  are not MCP are ignored: many servers write their log to standard output.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, get_args

from mcp import Client, MCPError
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, CallToolResult, ContentBlock, ErrorData, JSONRPCError, Tool
from pydantic import ValidationError

from toolsvc.sources.mcp.server import McpServer

_CONTENT = {
    kind
    for block in get_args(ContentBlock)
    for kind in get_args(block.model_fields["type"].annotation)
}
_KNOWN = ", ".join(sorted(_CONTENT))
_SURROGATE = re.compile("[\ud800-\udfff]")
MOST_PAGES = 100
"""Most pages of a listing."""


class ConnectFailed(Exception):
    """The server cannot be reached, or does not speak MCP; the message says how it failed."""


class ConnectionLost(Exception):
    """The server closed the session or died, during a call or before it."""


class BadAnswer(Exception):
    """The server's answer is not MCP; the message is one sentence about it."""


class McpConnection:
    """A session that is made by `start` and ended by `close`."""

    lost: str | None = None
    """Reason why the server's side is gone; None = it is there."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._end = asyncio.Event()
        self._client: asyncio.Future[Client] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def started(self) -> bool:
        return self._client is not None and self._client.done()

    async def start(self) -> None:
        """Connects; callers that come meanwhile share the connection. Raises ConnectFailed; it may
        be called again."""
        if self._client is None:
            self._client = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._live(self._client))
        try:
            await asyncio.shield(self._client)
        except ConnectFailed:
            self._client = None
            raise

    async def list_tools(self) -> list[Tool]:
        """All tools of the server, each once. An empty cursor, or one that came before, ends the
        list. Raises MCPError if the server refuses, BadAnswer for a list that is not MCP."""
        found: dict[str, Tool] = {}
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            try:
                page = await self._connected.list_tools(cursor=cursor)
            except ValidationError as error:
                raise BadAnswer(_fault(error)) from error
            for tool in page.tools:
                if found.setdefault(tool.name, tool) != tool:
                    raise BadAnswer(f"its list holds two different tools named {tool.name!r}")
            cursor = page.next_cursor
            if not cursor or cursor in seen:
                return list(found.values())
            seen.add(cursor)
        raise BadAnswer(f"its list of tools has more than {MOST_PAGES} pages")

    async def call(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Raises MCPError if the server refuses the call, ConnectionLost if the server is gone,
        BadAnswer for a result that is not MCP."""
        if self.lost is not None:
            raise ConnectionLost(self.lost)
        try:
            return await self._connected.call_tool(name, dict(arguments))
        except ValidationError as error:
            raise BadAnswer(_fault(error)) from error
        except MCPError as error:
            if self.lost is not None:
                raise ConnectionLost(self.lost) from error
            raise

    async def close(self) -> None:
        self._end.set()
        if self._task is not None:
            if not self.started:
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise RuntimeError("start the connection first")
        return self._client.result()

    async def _live(self, connected: asyncio.Future[Client]) -> None:
        try:
            transport = _watched(self._server, self._closed_by_server)
            async with Client(transport, mode="legacy", cache=None) as client:
                connected.set_result(client)
                await self._end.wait()
        except Exception as error:  # noqa: BLE001 - each transport has errors of its own
            if not connected.done():
                connected.set_exception(ConnectFailed(f"{self._server}: {_first(error)}"))
            elif not self._end.is_set():
                self.lost = self.lost or f"{self._server}: {_first(error)}"
        finally:
            connected.cancel()

    def _closed_by_server(self) -> None:
        if not self._end.is_set():
            self.lost = f"{self._server} closed the session or died"


class _Watched:
    """A read stream that reports its end and turns unreadable answers into errors of their
    requests; all else of it is the stream's own."""

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._stream.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise
        return _error_of_its_request(item) if isinstance(item, ValidationError) else item

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stream.__aexit__(*error)


@asynccontextmanager
async def _watched(server: McpServer, ended: Callable[[], None]) -> AsyncIterator[Any]:
    async with server.transport(ended) as (read, write):
        yield _Watched(read, ended), write


def _first(error: BaseException) -> str:
    """Message of the first error in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _error_of_its_request(unreadable: ValidationError) -> SessionMessage | ValidationError:
    """The error for the request of an unreadable answer. The SDK drops such an answer, and the
    request would wait for its run limit."""
    line = unreadable.errors(include_url=False)[0]["input"]
    try:
        # More lenient than the SDK's parser: half a surrogate pair is read.
        message = json.loads(line) if isinstance(line, str | bytes) else line
    except (ValueError, RecursionError):
        return unreadable
    request = message.get("id") if isinstance(message, dict) and "method" not in message else None
    if not isinstance(request, int | str):
        return unreadable
    halves = _SURROGATE.search(json.dumps(message, ensure_ascii=False))
    why = (
        f"the server's answer holds half a surrogate pair ({halves[0]!a}), which is not Unicode"
        if halves
        else _fault(unreadable)
    )
    error = ErrorData(code=PARSE_ERROR, message=why)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request, error=error))


def _fault(error: ValidationError) -> str:
    faults = error.errors(include_url=False)
    for fault in faults:
        if fault["loc"][-1:] == ("type",) and fault["input"] not in _CONTENT:
            return f"the server sent content of type {fault['input']!r:.80}; MCP has {_KNOWN}"
    first = faults[0]
    where = "".join(f"{part}: " for part in first["loc"][-1:])
    return f"the server's answer is not MCP ({where}{first['msg']})"
