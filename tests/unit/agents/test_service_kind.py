"""The kind `http` against a service of its own: documents, answers, ends of connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from agents.kinds.kind import Assigned, Played, Site
from agents.kinds.service import ServiceKind
from agents.outcomes import MOST_RESULT, Result
from agents.process.keepers import Keepers
from tests.support.net import free_port
from tests.support.waiting import until
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.recipe import Agent
from toolwright.types import Task

pytestmark = pytest.mark.quick

INGRESS = "http://127.0.0.1:50081"
TASK = Task(id="t", messages=({"role": "user", "content": "2+2?"},), answers=("4",))


class Service:
    """Answers with `answer`. Keeps what came."""

    def __init__(self) -> None:
        self.documents: list[dict[str, Any]] = []
        self.tokens: list[str | None] = []
        self.deleted: list[str] = []
        self.living = 0
        """Number of requests in progress."""
        self.answer: Callable[[], Awaitable[web.Response]] = self.done
        self.transport: asyncio.Transport | None = None
        """Of the last request."""
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_post("/agents", self._post)
        app.router.add_delete("/agents/{name}", self._delete)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/agents"
            yield
        finally:
            await runner.cleanup()

    async def _post(self, request: web.Request) -> web.Response:
        self.transport = request.transport
        self.tokens.append(request.headers.get("Authorization"))
        self.documents.append(await request.json())
        self.living += 1
        try:
            return await self.answer()
        finally:
            self.living -= 1

    async def _delete(self, request: web.Request) -> web.Response:
        self.deleted.append(request.match_info["name"])
        return web.Response(status=204)

    async def done(self) -> web.Response:
        return web.json_response({"answer": "4", "reward": 1, "parts": {"form": 0.5}})

    async def never(self) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    found = Service()
    async with found.serving():
        yield found


async def play(url: str, *, token: str = "", reward_key: str = "", **rules: Any) -> Played:
    kind = kind_of(url, token, **rules)
    try:
        return await kind.play(assigned(reward_key))
    finally:
        await kind.close()


def kind_of(url: str, token: str = "", **rules: Any) -> ServiceKind:
    site = Site(base=Path(), ingress=INGRESS, keepers=Keepers())
    return ServiceKind(Agent(kind="http", url=url, **rules), site, token)


def assigned(reward_key: str = "") -> Assigned:
    return Assigned(number=1, attempt="g/a0", task=TASK, key="tw-key", reward_key=reward_key)


async def test_a_service_gets_what_a_process_gets(service: Service) -> None:
    played = await play(
        service.url, token="secret", reward_key="twr-key", environment={"MODE": "fast"}
    )
    assert played.ending.outcome == pb.OUTCOME_DONE
    assert played.result == Result(answer="4", reward=1.0, parts={"form": 0.5})
    (document,) = service.documents
    assert service.tokens == ["Bearer secret"]
    assert document["OPENAI_BASE_URL"] == f"{INGRESS}/v1"
    assert document["OPENAI_API_KEY"] == document["ANTHROPIC_API_KEY"] == "tw-key"
    assert (document["MODE"], document["TOOLWRIGHT_REWARD_KEY"]) == ("fast", "twr-key")
    assert document["TOOLWRIGHT_TASK"]["messages"] == [{"role": "user", "content": "2+2?"}]
    assert "answers" not in document["TOOLWRIGHT_TASK"]


async def test_without_token_or_reward_key_none_is_sent(service: Service) -> None:
    await play(service.url)
    assert service.tokens == [None]
    assert "TOOLWRIGHT_REWARD_KEY" not in service.documents[0]


@pytest.mark.parametrize(
    ("answer", "outcome", "error"),
    [
        (web.Response(), pb.OUTCOME_DONE, ""),
        (web.Response(text="[1]"), pb.OUTCOME_FAILED, "not a JSON object"),
        (web.Response(text=" " * (MOST_RESULT + 9)), pb.OUTCOME_FAILED, "more than"),
        (web.Response(status=500, text="no tool"), pb.OUTCOME_FAILED, "status 500: no tool"),
        (web.Response(status=302, headers={"Location": "/x"}), pb.OUTCOME_FAILED, "status 302"),
        (web.Response(status=503), pb.OUTCOME_INFRASTRUCTURE, "status 503, which"),
    ],
    ids=str,
)
async def test_an_answer_decides_the_outcome(
    service: Service, answer: web.Response, outcome: int, error: str
) -> None:
    async def give() -> web.Response:
        return answer

    service.answer = give
    played = await play(service.url, retry_exits=(503,))
    assert played.ending.outcome == outcome
    assert error in played.ending.error
    assert played.ending.needs_calls
    assert len(service.documents) == 1


async def test_a_service_that_is_away_is_infrastructure() -> None:
    played = await play(f"http://127.0.0.1:{free_port()}/agents")
    assert played.ending.outcome == pb.OUTCOME_INFRASTRUCTURE


async def test_a_broken_connection_is_infrastructure(service: Service) -> None:
    async def cut() -> web.Response:
        assert service.transport is not None
        service.transport.close()
        return web.Response()

    service.answer = cut
    played = await play(service.url)
    assert played.ending.outcome == pb.OUTCOME_INFRASTRUCTURE


async def test_the_end_of_a_trajectory_closes_the_connection(service: Service) -> None:
    service.answer = service.never
    kind = kind_of(service.url)
    playing = asyncio.create_task(kind.play(assigned()))
    await until(lambda: service.living == 1, "the request")
    playing.cancel()
    await asyncio.wait({playing})
    await until(lambda: service.living == 0, "the end of the request")
    assert playing.cancelled()
    await kind.close()


@pytest.mark.parametrize(
    ("location", "deleted"),
    [
        ("/agents/7", ["7"]),
        ("agents/8", ["8"]),
        ("", []),
        ("http://127.0.0.1:9/agents/9", []),
        ("http://[", []),
    ],
)
async def test_an_accepted_agent_is_deleted_at_the_end_of_its_trajectory(
    service: Service, location: str, deleted: list[str]
) -> None:
    async def accept() -> web.Response:
        return web.Response(status=202, headers={"Location": location} if location else {})

    service.answer = accept
    kind = kind_of(service.url)
    with capture_logs() as logs:
        playing = asyncio.create_task(kind.play(assigned()))
        await until(lambda: any(one["event"] == "agent_accepted" for one in logs), "the answer")
        playing.cancel()
        await asyncio.wait({playing})
    assert playing.cancelled()
    assert service.deleted == deleted
    await kind.close()
