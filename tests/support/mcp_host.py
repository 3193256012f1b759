"""A host that serves the tools of one MCP server, and calls to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.hosts import calling, opening
from toolsvc.host.host import Host
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.loader import load_tools
from toolsvc.types import Result, Text


@asynccontextmanager
async def hosting(word: str, **options: Any) -> AsyncIterator[Host]:
    tools = await load_tools([word], {"mcp": options}, SandboxConfig())
    async with Host(tools) as host:
        await host.open(opening())
        yield host


async def call(host: Host, tool: str, arguments: Any, call_id: str = "a", **more: Any) -> Result:
    request = calling(call_id, tool=tool, arguments=arguments, queue_limit=60.0, **more)
    answer = await host.call(request._replace(digest=repr(request).encode(), wait=30.0))
    return answer.result


def text_of(result: Result) -> str:
    return "".join(part.text for part in result.observation if isinstance(part, Text))
