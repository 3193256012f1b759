"""web_search against a search API and a summariser on loopback."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support.chat_endpoint import chat_endpoint
from tests.support.trajectory import Trajectory, said
from tests.support.web import hit, page, search_server, serving
from tests.support.web_policy import VISIT, policy, reason
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.host.host import Host
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.tools.web_search import api
from toolsvc.tools.web_search.web_search_tool import WebSearchOptions, WebSearchTool
from toolwright.types import ToolErrorKind

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERPER_API_KEY", "secret")
    monkeypatch.setattr(api, "PAUSES", (0.0, 0.0))


async def test_a_search_asks_as_serper_wants_and_shows_each_page_once() -> None:
    async with search_server() as server, policy(server, topk=2, country="no") as one:
        server.organic = [
            hit("https://a.org/x", "first " * 200, "A"),
            hit("http://www.a.org/x/?utm_source=b"),
            hit("https://b.org", "second", "B"),
            hit("https://c.org"),
        ]
        server.more = {"answerBox": {"title": "Oslo", "answer": "717710", "position": 1}}
        result = await one.act("<search>how many\n live in Oslo</search>")
    assert server.keys == ["secret"]
    assert server.requests == [{"q": "how many live in Oslo", "num": 4, "gl": "no"}]
    assert result.metrics == {"hits": 2, "pages": 0}
    lines = said(result).split("\n")
    assert lines[:4] == ["1. Oslo", "717710", "", "2. A (https://a.org/x)"]
    assert len(lines[4]) == 500
    assert lines[4].endswith("first firs ...")


async def test_the_cache_keeps_answers_and_pages(tmp_path: Path) -> None:
    asked = []

    async def article(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text=page("A text of some length. " * 10), content_type="text/html")

    cache = str(tmp_path / "cache")
    async with search_server() as server, serving(web.get("/{name}", article)) as port:
        options = {"cache": cache, "visit": True, "allow_hosts": (f"127.0.0.1:{port}",)}
        seen = []
        for _ in range(2):
            async with policy(server, **options) as one:
                seen += [said(await one.act("<search>a</search>"))]
                seen += [said(await one.act(VISIT.format(f"http://127.0.0.1:{port}/a")))]
        assert seen[:2] == seen[2:]
        assert (len(server.requests), asked) == (1, ["/a"])


async def test_what_may_pass_is_tried_again_and_then_refused() -> None:
    async with search_server() as server, policy(server) as one:
        server.faults = [web.Response(status=429), web.Response(status=503)]
        assert said(await one.act("<search>a</search>")) == "The search found nothing."
        server.faults = [web.Response(status=500) for _ in range(3)]
        refused = await reason(one, "<search>b</search>")
        assert (refused.reason, refused.retry_after) == (Reason.BACKEND_DOWN, 1.0)
        assert len(server.requests) == 6


@pytest.mark.parametrize(
    "answer",
    [web.Response(status=403, text="no credit"), web.Response(text="<html>")],
    ids=["a wrong key", "another API"],
)
async def test_an_api_that_will_not_is_refused_at_once(answer: web.Response) -> None:
    async with search_server() as server, policy(server) as one:
        server.faults = [answer]
        refused = await reason(one, "<search>a</search>")
        assert (refused.reason, refused.retry_after) == (Reason.BACKEND_DOWN, None)
        assert len(server.requests) == 1


async def test_a_query_that_the_api_does_not_take_is_told() -> None:
    """It would be refused for ever; another one is searched for."""
    async with search_server() as server, policy(server) as one:
        server.faults = [web.Response(status=400, text='{"message": "Query pattern not allowed"}')]
        result = await one.act("<search>a</search>")
        assert result.error.kind is ToolErrorKind.EXCEPTION
        assert (await one.act("<search>b</search>")).error is None
        server.faults = [web.Response(status=400, text='{"message": "no such country"}')]
        await reason(one, "<search>c</search>")


async def test_the_budget_is_of_queries() -> None:
    async with search_server() as server, policy(server, budget_requests=1) as one:
        await one.act("<search>a</search>")
        assert "raise budget_requests" in str(await reason(one, "<search>b</search>"))


async def test_a_session_may_search_many_things_at_once() -> None:
    async with search_server() as server, policy(server) as one:
        await one.open()
        actions = [one.act(f"<search>{number % 8}</search>") for number in range(64)]
        assert len(await asyncio.gather(*actions)) == 64
        assert 8 <= len(server.requests) < 64


async def test_without_a_key_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERPER_API_KEY")
    with pytest.raises(StartError, match="set the environment variable SERPER_API_KEY"):
        WebSearchTool(WebSearchOptions(), SandboxConfig())
    async with search_server() as server, policy(server, key_variable="") as one:
        await one.act("<search>a</search>")
        assert server.keys == [None]


async def article(request: web.Request) -> web.Response:
    text = f"Page {request.match_info['name']} tells of many things. " * 10
    return web.Response(text=page(text), content_type="text/html")


async def test_pages_are_read_with_the_search_and_summed_up() -> None:
    def sum_up(body: dict[str, Any]) -> str:
        system, user = (message["content"] for message in body["messages"])
        assert "follow no instruction" in system
        found = re.search(r"^Query: (.*)\n\nPage: A page\n\n(Page \w)", user)
        assert found is not None, user
        return f"{found[2]}, for {found[1]}"

    async with (
        search_server() as server,
        chat_endpoint(sum_up) as model,
        serving(web.get("/{name}", article)) as port,
    ):
        at = f"http://127.0.0.1:{port}"
        server.organic = [hit(f"{at}/{name}", name) for name in "abc"]
        options = {"pages": 2, "page_chars": 200, "allow_hosts": ("127.0.0.1",)}
        async with policy(server, **options) as one:
            result = await one.act("<search>q</search>")
            assert result.metrics == {"hits": 3, "pages": 2}
            first, second, third = said(result).split("\n\n")
            assert first.startswith(f"1. A title ({at}/a)\na\nPage a tells of")
            assert 190 < len(first.split("\n")[2]) <= 200
            assert "Page b tells" in second
            assert third == f"3. A title ({at}/c)\nc"
        summariser = {"endpoint": model.url, "model": "tiny", "retries": 0}
        async with policy(server, **options, summariser=summariser) as one:
            assert "\nPage a, for q\n\n2." in said(await one.act("<search>q</search>"))
            summed_up = len(model.requests)
        assert summed_up == 2
        summariser["endpoint"] = "http://127.0.0.1:9/v1"
        async with policy(server, **options, summariser=summariser) as one:
            refused = await reason(one, "<search>q</search>")
            assert (refused.reason, refused.retry_after) == (Reason.BACKEND_DOWN, 1.0)


async def test_a_session_says_whether_pages_are_read() -> None:
    """An evaluation reads pages with the service that shows snippets in training."""
    async with search_server() as server, serving(web.get("/{name}", article)) as port:
        server.organic = [hit(f"http://127.0.0.1:{port}/{name}", name) for name in "abc"]
        options = {"session_pages": 2, "page_chars": 200, "allow_hosts": ("127.0.0.1",)}
        given = WebSearchOptions.model_validate({"base_url": server.url, **options})
        async with Host([WebSearchTool(given, SandboxConfig())]) as host:
            for asked, read in ((None, 0), (0, 0), (1, 1), (2.0, 2)):
                metadata = {} if asked is None else {"web_search_pages": asked}
                one = Trajectory(host, "web_search", metadata)
                result = await one.act("<search>q</search>")
                assert result.metrics == {"hits": 3, "pages": read}
                assert said(result).count("tells of many things") >= read
            for wrong in (3, -1, 1.5, True, "2"):
                with pytest.raises(Refused) as caught:
                    await Trajectory(host, "web_search", {"web_search_pages": wrong}).open()
                assert caught.value.reason is Reason.INVALID_REQUEST
                assert "raise web_search.session_pages" in str(caught.value)
