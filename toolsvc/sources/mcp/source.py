"""`toolsvc serve 'mcp:COMMAND'` and `toolsvc serve mcp:URL`: the tools of an MCP server, as it
lists them when the service starts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import mcp_types
from mcp import MCPError
from pydantic import BaseModel, Field

from toolsvc.errors import StartError
from toolsvc.plugin.tool import STRICT, Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.elsewhere import Source
from toolsvc.sources.mcp.connection import BadAnswer, ConnectFailed, McpConnection
from toolsvc.sources.mcp.mcp_tool import McpSessions, McpTool, own_names
from toolsvc.sources.mcp.server import McpServer


class McpOptions(BaseModel):
    """Options of MCP servers."""

    model_config = STRICT

    tools: tuple[str, ...] = Field(default=(), description="those of its tools alone; default: all")
    env: dict[str, str] = Field(
        default={}, description='environment of a command, such as {KEY = "value"}'
    )
    folder: Path | None = Field(default=None, description="folder in which a command runs")
    token: str = Field(
        default="", description="environment variable that holds the bearer token of a URL"
    )
    run_limit: float = Field(default=30.0, gt=0, description="seconds of a call")
    start_limit: float = Field(default=60.0, gt=0, description="seconds for the first listing")


class McpSource(Source):
    where = "COMMAND|URL"
    description = "The tools of an MCP server."
    Config = McpOptions

    @classmethod
    async def tools(cls, where: str, options: McpOptions, sandbox: SandboxConfig) -> list[Tool]:
        server = McpServer(
            where, environment=options.env, folder=options.folder, token=options.token
        )
        connection = McpConnection(server)
        try:
            async with asyncio.timeout(options.start_limit):
                await connection.start()
                listed = await connection.list_tools()
        except TimeoutError as error:
            raise StartError(
                f"{server} did not list its tools within {options.start_limit:g} s: "
                "raise mcp.start_limit, or see whether it starts by hand"
            ) from error
        except (BadAnswer, ConnectFailed, MCPError) as error:
            raise StartError(f"cannot list the tools of {server}: {error}") from error
        finally:
            await connection.close()
        listed = [tool for tool in listed if not _wants_a_task(tool)]
        known = [tool.name for tool in listed]
        if not known:
            raise StartError(f"{server} has no tools that answer a plain call")
        missing = set(options.tools) - set(known)
        if missing:
            raise StartError(
                f"{server} has no tool {', '.join(sorted(missing))}, only {', '.join(known)}"
            )
        sessions = McpSessions(server)
        names = own_names(known)
        return [
            McpTool(names[tool.name], tool, sessions, options.run_limit)
            for tool in listed
            if not options.tools or tool.name in options.tools
        ]


def _wants_a_task(tool: mcp_types.Tool) -> bool:
    """Whether a plain call of it is refused: it answers by tasks, which are not spoken here."""
    return tool.execution is not None and tool.execution.task_support == "required"
