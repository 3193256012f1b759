"""Agents of a service that runs beside a real `agents serve`, engine and ingress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.integration.engine.conftest import MakeWorld
from tests.support.hosted_agents import hosted
from tests.support.recipes import ONE
from tests.support.waiting import until
from toolwright.types import StopReason, Trajectory

pytestmark = pytest.mark.slow

Answer = Callable[[dict[str, Any]], Awaitable[web.Response]]
TOKEN = "service-secret"


class Service:
    """Agents of one URL. `answer` decides what becomes of a document."""

    def __init__(self) -> None:
        self.answer: Answer = self.plays
        self.posts = 0
        self.deleted = 0
        self.url = ""
        self._later = set[asyncio.Task[None]]()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_post("/agents", self._post)
        app.router.add_delete("/agents/1", self._delete)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/agents"
            yield
        finally:
            await runner.cleanup()

    async def _post(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        self.posts += 1
        return await self.answer(await request.json())

    async def _delete(self, _request: web.Request) -> web.Response:
        self.deleted += 1
        return web.Response(status=204)

    async def plays(self, document: dict[str, Any]) -> web.Response:
        return web.json_response({"answer": await calls(document), "reward": 0.25})

    async def fails_first(self, document: dict[str, Any]) -> web.Response:
        return web.Response(status=500) if self.posts < 3 else await self.plays(document)

    async def fails_after_a_call(self, document: dict[str, Any]) -> web.Response:
        await calls(document)
        return web.Response(status=500, text="no more tools")

    async def goes_on(self, document: dict[str, Any]) -> web.Response:
        async def later() -> None:
            answer = await calls(document)
            await post(document, "reward", {"reward": 0.75}, document["TOOLWRIGHT_REWARD_KEY"])
            await post(document, "end", {"outcome": "done", "answer": answer})

        self._later.add(asyncio.create_task(later()))
        return web.Response(status=202, headers={"Location": "/agents/1"})


async def calls(document: dict[str, Any]) -> str:
    """One model call: its text."""
    messages = document["TOOLWRIGHT_TASK"]["messages"]
    body = {"model": document["OPENAI_MODEL"], "messages": messages}
    found = await post(document, "chat/completions", body)
    return str(found["choices"][0]["message"]["content"])


async def post(document: dict[str, Any], route: str, body: Any, key: str = "") -> Any:
    headers = {"Authorization": f"Bearer {key or document['OPENAI_API_KEY']}"}
    async with (
        aiohttp.ClientSession(headers=headers, raise_for_status=True) as session,
        session.post(f"{document['OPENAI_BASE_URL']}/{route}", json=body) as response,
    ):
        return await response.json()


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    monkeypatch.setenv("AGENTS_TOKEN", TOKEN)
    found = Service()
    async with found.serving():
        yield found


async def trajectory(world: MakeWorld, service: Service, answer: Answer) -> Trajectory:
    service.answer = answer
    here = await world(run=ONE)
    rules = {"url": service.url, "token_env": "AGENTS_TOKEN", "reward_from": "agent"}
    async with hosted(here, {"kind": "http", **rules}, "") as (run, _):
        (group,) = await run.learner.lease(run.version)
    (member,) = group.members
    assert member.stop_reason is StopReason.ANSWERED
    assert len(member.sequences) == 1
    return member


async def test_a_service_answers_when_its_agent_is_done(world: MakeWorld, service: Service) -> None:
    found = await trajectory(world, service, service.plays)
    assert (found.reward, found.attempt, service.posts) == (0.25, 0, 1)
    assert found.metadata["answer"]


async def test_an_accepted_agent_ends_its_trajectory_itself(
    world: MakeWorld, service: Service
) -> None:
    found = await trajectory(world, service, service.goes_on)
    assert (found.reward, found.attempt, service.posts) == (0.75, 0, 1)
    assert found.metadata["answer"]
    await until(lambda: service.deleted == 1, "the DELETE")


async def test_a_failure_before_the_first_call_gets_another_attempt(
    world: MakeWorld, service: Service
) -> None:
    found = await trajectory(world, service, service.fails_first)
    assert (found.reward, found.attempt, service.posts) == (0.25, 2, 3)


async def test_a_failure_after_a_call_is_kept(world: MakeWorld, service: Service) -> None:
    found = await trajectory(world, service, service.fails_after_a_call)
    assert (found.attempt, service.posts) == (0, 1)
    (failed,) = [one for one in found.events if one.kind == "agent_failed"]
    assert failed.data["error"].endswith("status 500: no more tools")
