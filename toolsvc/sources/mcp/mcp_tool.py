"""A tool of an MCP server as a tool of this service.

Invariants
- All tools of one server share one MCP session for each session of this service. It begins with the
  first call, as queue time, and ends with the session.
- Arguments are checked against the server's own JSON Schema where that takes bounded time, else by
  the server alone. The descriptor holds the schema as it came.
- A server that dies takes its session with it: the call in flight is CRASHED and says so, later
  ones are refused with SESSION_LOST. No call is ever repeated in another MCP session.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import mcp_types
import structlog
from mcp import MCPError

from toolsvc.errors import StartError, backend_down
from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.results import ToolFailed
from toolsvc.plugin.tool import LiveState
from toolsvc.schemas.schema_tool import SchemaTool
from toolsvc.schemas.validation import BadSchema, UnboundedSchema
from toolsvc.sources.mcp.connection import BadAnswer, ConnectFailed, ConnectionLost, McpConnection
from toolsvc.sources.mcp.content import as_result
from toolsvc.sources.mcp.server import McpServer
from toolsvc.types import Call, Result, SessionInfo, Text, ToolError
from toolwright.types import ToolErrorKind

STARTS = 2 * (os.cpu_count() or 1)
"""Servers that may be starting at once: a burst of first calls must not start a thousand."""
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")

log = structlog.get_logger(__name__)


class SharedConnection(McpConnection, LiveState):
    """An MCP session that all tools of one session of this service share."""

    def __init__(self, server: McpServer, starts: asyncio.Semaphore) -> None:
        super().__init__(server)
        self._starts = starts
        self.users = 0
        """Number of tools that share it."""

    @property
    def ready(self) -> bool:
        return self.started

    async def prepare(self) -> None:
        async with self._starts:
            try:
                await self.start()
            except ConnectFailed as error:
                raise backend_down(str(error)) from error


class McpSessions:
    """MCP sessions with one server, by the session of this service that they belong to."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._held: dict[str, SharedConnection] = {}
        self._starts = asyncio.Semaphore(STARTS)

    def __len__(self) -> int:
        return len(self._held)

    def join(self, session_id: str) -> SharedConnection:
        connection = self._held.get(session_id)
        if connection is None:
            connection = self._held[session_id] = SharedConnection(self._server, self._starts)
        connection.users += 1
        return connection

    async def leave(self, connection: SharedConnection) -> None:
        """The last tool to leave ends the MCP session."""
        connection.users -= 1
        if not connection.users:
            self._held = {name: one for name, one in self._held.items() if one is not connection}
            await connection.close()


def own_names(theirs: Iterable[str]) -> dict[str, str]:
    """The name of each of their tools here, where a name has only letters, digits, "_" and "-".

    Of names that become the same, one that needs no change keeps it, and the others get a number,
    in alphabetical order: the same numbers whatever the order of the server's list.
    """
    ordered = sorted(theirs, key=lambda name: (_FOREIGN.search(name) is not None, name))
    taken: dict[str, str] = {}
    for name in ordered:
        plain = own = _FOREIGN.sub("_", name)
        number = 1
        while own in taken:
            number += 1
            own = f"{plain}_{number}"
        taken[own] = name
    return {name: own for own, name in taken.items()}


class McpTool(SchemaTool):
    media = True

    def __init__(
        self, name: str, theirs: mcp_types.Tool, sessions: McpSessions, run_limit: float
    ) -> None:
        """Raises StartError if the tool's schema is not a JSON Schema."""
        self._theirs = theirs
        self._sessions = sessions
        self.name = name
        self.description = theirs.description or theirs.title or ""
        self.run_limit = run_limit
        only_reads = theirs.annotations is not None and theirs.annotations.read_only_hint is True
        self.stateful, self.parallel_calls = not only_reads, only_reads
        self.schema = theirs.input_schema
        try:
            self._checks = bool(self.matcher)
        except UnboundedSchema as error:
            self._checks = False
            log.warning("arguments are checked by the server alone", tool=self.name, why=str(error))
        except BadSchema as error:
            raise StartError(f"MCP tool {theirs.name}: no JSON Schema: {error}") from error

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        if self._checks:
            super().check_arguments(arguments)

    async def open(self, session: SessionInfo) -> SharedConnection:
        return self._sessions.join(session.session_id)

    async def close(self, state: SharedConnection) -> None:
        await self._sessions.leave(state)

    def figures(self) -> dict[str, float]:
        return {"mcp_sessions": len(self._sessions)}

    async def call(self, state: SharedConnection, call: Call) -> Result:
        try:
            return as_result(await state.call(self._theirs.name, call.arguments))
        except ConnectionLost as error:
            lost = ToolError(kind=ToolErrorKind.CRASHED, message=str(error), session_lost=True)
            return Result(observation=(Text(text=f"SessionLost: {error}"),), error=lost)
        except BadAnswer as error:
            raise ToolFailed(f"{self.name}: {error}") from error
        except MCPError as error:
            if error.code == mcp_types.INVALID_PARAMS:
                raise InvalidAction(f"{self.name}: {error.message}") from error
            if error.code == mcp_types.PARSE_ERROR:  # of the SDK, in several lines
                raise ToolFailed(f"{self.name}: {' '.join(error.message.split())}") from error
            raise ToolFailed(f"{self.name}: {error.message}") from error
