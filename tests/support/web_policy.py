"""A policy of the web_search tool in front of a search API and a small web on loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.support.trajectory import Trajectory
from tests.support.web import SearchServer, search_server, serving
from toolsvc.errors import Refused
from toolsvc.host.host import Host
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.tools.web_search.web_search_tool import WebSearchOptions, WebSearchTool

VISIT = "<visit> {} </visit>"


@asynccontextmanager
async def policy(server: SearchServer, **options: Any) -> AsyncIterator[Trajectory]:
    given = WebSearchOptions.model_validate({"base_url": server.url, **options})
    async with Host([WebSearchTool(given, SandboxConfig())]) as host:
        yield Trajectory(host, "web_search")


@asynccontextmanager
async def visitor(
    *routes: web.RouteDef, allowed: bool = True
) -> AsyncIterator[tuple[Trajectory, str]]:
    """A policy that may open pages, and where those of `routes` are."""
    async with search_server() as server, serving(*routes) as port:
        hosts = (f"127.0.0.1:{port}",) if allowed else ()
        async with policy(server, visit=True, key_variable="", allow_hosts=hosts) as one:
            yield one, f"http://127.0.0.1:{port}"


async def reason(policy: Trajectory, action: str) -> Refused:
    with pytest.raises(Refused) as caught:
        await policy.act(action)
    return caught.value
