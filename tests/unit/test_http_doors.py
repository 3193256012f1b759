"""Every HTTP server of the project refuses what a page of another site can send."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from bench.scripted import ScriptedSampler, replies
from engine.serving.telemetry.page import metrics_page
from tests.support.agents import served_agents
from tests.support.net import free_port
from toolsvc.backends.search.http import RetrieveServer
from toolsvc.backends.search.searcher import Searcher
from toolsvc.edge.metrics_server import MetricsServer
from toolsvc.host.host import Host
from toolsvc.sources.verltool.http import ObservationServer
from toolwright.process.metrics_page import threaded_page

pytestmark = pytest.mark.quick
FOLDERS: list[Path] = []
Door = Callable[[], AbstractAsyncContextManager[int]]


@asynccontextmanager
async def verltool() -> AsyncIterator[int]:
    async with Host([]) as host, ObservationServer(host, "127.0.0.1:0", insecure=False) as server:
        yield server.port


@asynccontextmanager
async def search() -> AsyncIterator[int]:
    nothing = cast(Searcher, None)  # a request without queries does not reach the searcher
    async with RetrieveServer(nothing, "127.0.0.1:0", topk=3, insecure=False) as server:
        yield server.port


@asynccontextmanager
async def service_metrics() -> AsyncIterator[int]:
    async def page() -> bytes:
        return b"calls 1\n"

    async with MetricsServer("127.0.0.1:0", page, public=False) as server:
        yield server.port


@asynccontextmanager
async def public_metrics() -> AsyncIterator[int]:
    async def page() -> bytes:
        return b"calls 1\n"

    async with MetricsServer("0.0.0.0:0", page, public=True) as server:
        yield server.port


@asynccontextmanager
async def engine_metrics() -> AsyncIterator[int]:
    port = free_port()
    async with metrics_page(CollectorRegistry(), port):
        yield port


@asynccontextmanager
async def learner_metrics() -> AsyncIterator[int]:
    with threaded_page(CollectorRegistry(), 0) as port:
        yield port


@asynccontextmanager
async def scripted_sampler() -> AsyncIterator[int]:
    async with ScriptedSampler(script=replies([[5]])) as sampler:
        yield int(sampler.url.rpartition(":")[2])


@pytest.fixture(scope="module", autouse=True)
def policy(policy_folder: Path) -> None:
    FOLDERS.append(policy_folder)


@asynccontextmanager
async def agents() -> AsyncIterator[int]:
    async with served_agents(FOLDERS[-1], []) as served:
        yield int(served.root.rpartition(":")[2])


OF_EACH = [
    (verltool, "POST", "/get_observation", 422),
    (verltool, "GET", "/health", 200),
    (search, "POST", "/retrieve", 422),
    (service_metrics, "GET", "/metrics", 200),
    (public_metrics, "GET", "/metrics", 200),
    (engine_metrics, "GET", "/metrics", 200),
    (learner_metrics, "GET", "/metrics", 200),
    (scripted_sampler, "POST", "/generate", 400),
    (scripted_sampler, "GET", "/metrics", 200),
    (agents, "POST", "/t/key/v1/chat/completions", 400),
    (agents, "GET", "/health", 200),
]
REBOUND: dict[str, str] = {"Host": "evil.example"}
ATTACKS: list[tuple[dict[str, str], int]] = [
    (REBOUND, 421),
    (REBOUND | {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}, 421),
    ({"Origin": "https://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
]
FORMS = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]


@pytest.mark.parametrize(
    ("door", "method", "path", "right"),
    OF_EACH,
    ids=[f"{d.__name__} {p}" for d, _, p, _ in OF_EACH],
)
async def test_no_page_of_another_site_is_answered(
    door: Door, method: str, path: str, right: int
) -> None:
    data = b"{}" if method == "POST" else None
    json = {"Content-Type": "application/json"} if data else {}
    async with door() as port, aiohttp.ClientSession() as session:

        async def status(headers: dict[str, str], **options: Any) -> int:
            url = f"http://127.0.0.1:{port}{path}"
            async with session.request(method, url, data=data, headers=headers, **options) as got:
                return got.status

        assert await status(json) == right, "a program is answered"
        for attack, wanted in ATTACKS:
            assert await status(json | attack) == wanted, attack
        for form in FORMS if data else ():
            assert await status({"Content-Type": form}) == 415, form
