"""A ToolService as an MCP server: its tools, under their names, for other agents.

Invariants
- One session of the service for each MCP session, opened with its first call and closed with it. If
  the client vanishes, the session ends by its lease.
- A tool error is an MCP result with `isError`, for the agent to read. A refusal of the service is
  an MCP error: nothing ran, or what came of it is lost.
- Protocol 2026-07-28 has no sessions over HTTP. So a service with a stateful tool does not offer
  it, and a client that can choose takes an earlier protocol. If a client uses it anyway, each call
  of a stateless tool gets a session of its own, and a stateful tool refuses with the reason.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from toolsvc.edge.client import Client, OpenedSession
from toolsvc.sources.mcp.content import as_content
from toolsvc.types import Media, Text
from toolwright import wire
from toolwright.reading.json_text.json_bounds import OutOfBounds, check_values
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.text.schemas import in_order
from toolwright.tool.v1 import tool_pb2 as pb

SESSION_HEADER = "mcp-session-id"
IDLE_SECONDS = 1800.0
"""Lease of a session; every call renews it."""

_Context = ServerRequestContext[Any, Any]


class Offer:
    """The sessions of one ToolService, by MCP session."""

    def __init__(self, client: Client, tools: Mapping[str, pb.ToolDescriptor], alone: str) -> None:
        """`alone`: name of the one MCP session where the transport has one client and no ids; ""
        where ids come with the requests."""
        self._client = client
        self._tools = tools
        self._alone = alone
        self._sessions: dict[str, asyncio.Task[OpenedSession]] = {}

    def server(self) -> Server[Any]:
        server: Server[Any] = Server(
            "toolwright", on_list_tools=self._list_tools, on_call_tool=self._call_tool
        )
        if not self._alone and any(tool.stateful for tool in self._tools.values()):
            server.add_request_handler("server/discover", types.RequestParams, self._discover)
        return server

    async def close(self) -> None:
        await asyncio.gather(*map(self.end, list(self._sessions)))

    async def end(self, name: str) -> None:
        """Closes the session of the MCP session, if it has one."""
        opening = self._sessions.pop(name, None)
        if opening is None:
            return
        (opened,) = await asyncio.gather(opening, return_exceptions=True)
        if isinstance(opened, OpenedSession):
            await asyncio.gather(opened.close(), return_exceptions=True)

    async def _discover(
        self, context: _Context, params: types.RequestParams
    ) -> types.DiscoverResult:
        """Names the protocols that begin with a handshake, which makes a session."""
        return types.DiscoverResult(
            supported_versions=list(HANDSHAKE_PROTOCOL_VERSIONS),
            capabilities=types.ServerCapabilities(tools=types.ToolsCapability()),
        )

    async def _list_tools(
        self, context: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in self._tools.values()])

    async def _call_tool(
        self, context: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            known = ", ".join(self._tools)
            raise MCPError(types.INVALID_PARAMS, f"no tool {params.name!r}, only {known}")
        name = self._alone or _session_of(context)
        if not name and tool.stateful:
            raise MCPError(
                types.INVALID_REQUEST,
                f"{tool.name} keeps state, and this connection has no session: connect by the "
                "initialize handshake (protocol 2025-11-25 or older)",
            )
        arguments = params.arguments or {}
        try:
            check_values(arguments)
        except OutOfBounds as error:
            said = types.TextContent(type="text", text=f"{tool.name} cannot read the call: {error}")
            return types.CallToolResult(content=[said], is_error=True)
        only_once = "" if name else uuid.uuid4().hex
        try:
            session = await self._session(name or only_once)
            result = await session.call(tool.name, "", arguments)
            return _answer(result, await session.parts(result))
        except (ServiceError, TransportError) as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error
        finally:
            if only_once:
                await self.end(only_once)

    async def _session(self, name: str) -> OpenedSession:
        """The session, opened at the first call. Raises ServiceError or TransportError."""
        opening = self._sessions.get(name)
        if opening is None:
            opening = self._sessions[name] = asyncio.create_task(
                self._client.open((), {}, f"mcp-{uuid.uuid4().hex}", lease=IDLE_SECONDS)
            )
        try:
            session = await asyncio.shield(opening)
        except (ServiceError, TransportError):
            self._sessions.pop(name, None)
            raise
        await session.renew(IDLE_SECONDS)
        return session


def _session_of(context: _Context) -> str:
    request = context.request
    return "" if request is None else str(request.headers.get(SESSION_HEADER, ""))


def _described(tool: pb.ToolDescriptor) -> types.Tool:
    schema = in_order({"type": "object", **wire.mapping(tool.arguments_schema)})
    return types.Tool(name=tool.name, description=tool.description, input_schema=schema)


def _answer(result: pb.CallResult, parts: list[Text | Media]) -> types.CallToolResult:
    """The MCP result of a call. Fields that an agent need not read travel in `_meta`."""
    meta: dict[str, Any] = {}
    if result.done:
        meta["toolwright/done"] = True
    if result.HasField("reward"):
        meta["toolwright/reward"] = result.reward
    return types.CallToolResult(
        content=as_content(parts), is_error=result.HasField("error"), _meta=meta or None
    )
