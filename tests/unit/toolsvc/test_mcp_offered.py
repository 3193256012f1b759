"""Which tools of an MCP server are taken, and which protocols are offered for ours; no process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.server import Server
from mcp.shared.memory import create_client_server_memory_streams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolsvc.edge.client import Client as ServiceClient
from toolsvc.errors import StartError
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.mcp.offer import Offer
from toolsvc.sources.mcp.server import McpServer
from toolsvc.sources.mcp.source import McpOptions, McpSource
from toolwright.tool.v1 import tool_pb2 as pb


def listed(name: str, support: str | None) -> types.Tool:
    execution = None if support is None else {"taskSupport": support}
    return types.Tool.model_validate(
        {"name": name, "inputSchema": {"type": "object"}, "execution": execution}
    )


async def taken(monkeypatch: pytest.MonkeyPatch, *tools: types.Tool) -> list[str]:
    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(tools))

    server: Server[Any] = Server("theirs", on_list_tools=list_tools)

    @asynccontextmanager
    async def transport(self: McpServer, gone: Any) -> AsyncIterator[Any]:
        async with (
            create_client_server_memory_streams() as (ours, theirs),
            anyio.create_task_group() as group,
        ):
            group.start_soon(server.run, *theirs, server.create_initialization_options())
            yield ours
            group.cancel_scope.cancel()

    monkeypatch.setattr(McpServer, "transport", transport)
    found = await McpSource.tools("http://here", McpOptions(), SandboxConfig())
    return [tool.name for tool in found]


async def test_tools_that_answer_by_tasks_alone_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tools = [listed(str(support), support) for support in (None, "forbidden", "optional")]
    alone = listed("required", "required")
    assert await taken(monkeypatch, *tools, alone) == ["None", "forbidden", "optional"]
    with pytest.raises(StartError, match="no tools that answer a plain call"):
        await taken(monkeypatch, alone)


@pytest.mark.parametrize(("stateful", "alone"), [(False, ""), (True, "stdio")])
async def test_the_protocol_without_sessions_is_offered_where_none_is_needed(
    stateful: bool, alone: str
) -> None:
    tools = {"t": pb.ToolDescriptor(name="t", stateful=stateful)}
    server = Offer(cast("ServiceClient", None), tools, alone).server()
    async with Client(server) as agent:
        assert agent.protocol_version in MODERN_PROTOCOL_VERSIONS
