"""web_search against a search API, a small web and a summariser on loopback."""

import asyncio
import gzip
import re
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support.chat_endpoint import chat_endpoint
from tests.support.trajectory import Trajectory, said
from tests.support.web import SearchServer, hit, page, search_server, serving
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.host.host import Host
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.tools.web_search import api, extract, fetch
from toolsvc.tools.web_search.web_search_tool import WebSearchOptions, WebSearchTool
from toolwright.types import ToolErrorKind

pytestmark = pytest.mark.quick

VISIT = "<visit> {} </visit>"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERPER_API_KEY", "secret")
    monkeypatch.setattr(api, "PAUSES", (0.0, 0.0))


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
        async with policy(server, visit=True, allow_hosts=hosts) as one:
            yield one, f"http://127.0.0.1:{port}"


async def reason(policy: Trajectory, action: str) -> Refused:
    with pytest.raises(Refused) as caught:
        await policy.act(action)
    return caught.value


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


async def test_names_that_are_never_found_keep_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither other pages nor the threads of the event loop."""
    real, asked, over = socket.getaddrinfo, set(), threading.Event()

    def find(host: str, *given: Any, **more: Any) -> Any:
        """A name server that knows one name, and does not answer for others."""
        if str(host).endswith(".test") and host != "quick.test":
            asked.add(host)
            over.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return real("127.0.0.1" if host == "quick.test" else host, *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", find)
    many = 30
    async with serving(web.get("/", lambda _: web.Response(text="here"))) as port:
        fetcher = fetch.Fetcher(("quick.test",))
        try:
            waiting = [
                asyncio.create_task(fetcher.fetch(f"http://slow-{number}.test/"))
                for number in range(many)
            ]
            while len(asked) < many:  # noqa: ASYNC110 - until all of them wait
                await asyncio.sleep(0.01)
            found = await fetcher.fetch(f"http://quick.test:{port}/")
            assert found.body == b"here"
            assert await asyncio.to_thread(lambda: "free") == "free"
            assert not any(task.done() for task in waiting)
            over.set()
            for one in await asyncio.gather(*waiting, return_exceptions=True):
                assert str(one) == "there is no such host"
        finally:
            over.set()
            await fetcher.close()


async def test_the_budget_is_of_queries() -> None:
    async with search_server() as server, policy(server, budget_requests=1) as one:
        await one.act("<search>a</search>")
        refused = await reason(one, "<search>b</search>")
        assert "the budget of 1 requests is spent: raise budget_requests" in str(refused)


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


async def test_pages_are_read_with_the_search_and_summed_up() -> None:
    async def article(request: web.Request) -> web.Response:
        text = f"Page {request.match_info['name']} tells of many things. " * 10
        return web.Response(text=page(text), content_type="text/html")

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

    async def article(request: web.Request) -> web.Response:
        text = f"Page {request.match_info['name']} tells of many things. " * 10
        return web.Response(text=page(text), content_type="text/html")

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
            for wrong in (3, -1, 1.5, True, "2", [1], 1e308):
                with pytest.raises(Refused) as caught:
                    await Trajectory(host, "web_search", {"web_search_pages": wrong}).open()
                assert caught.value.reason is Reason.INVALID_REQUEST
                assert "raise web_search.session_pages" in str(caught.value)


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/html"})
    await response.prepare(request)
    await response.write(page("The beginning of a text. " * 10).encode())
    while True:
        await response.write(b"<p>more and more of it</p>" * 1000)


async def bomb(request: web.Request) -> web.Response:
    packed = gzip.compress(page("The beginning of a text. " * 10).encode() + bytes(200 << 20), 1)
    headers = {"Content-Type": "text/html", "Content-Encoding": "gzip"}
    return web.Response(body=packed, headers=headers)


async def hangs(request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def picture(request: web.Request) -> web.Response:
    return web.Response(body=b"\x89PNG", content_type="image/png")


async def plain(request: web.Request) -> web.Response:
    return web.Response(
        body="Blåbær".encode("latin-1"), content_type="text/plain", charset="latin-1"
    )


async def empty(request: web.Request) -> web.Response:
    return web.Response(text="<html></html>", content_type="text/html")


async def loops(request: web.Request) -> web.Response:
    raise web.HTTPFound("/loops")


async def away(request: web.Request) -> web.Response:
    raise web.HTTPFound(request.query["to"])


WEB = [
    web.get(f"/{handler.__name__}", handler)
    for handler in (endless, bomb, hangs, picture, plain, empty, loops, away)
]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nothing", "the page answered 404"),
        ("picture", "the page is image/png, not text"),
        ("empty", "the page holds no text"),
        ("loops", "the page redirects more than 5 times"),
        ("hangs", "the page did not come within"),
        ("away?to=file:///etc/passwd", "'file:///etc/passwd' is no address of a page"),
    ],
)
async def test_a_page_that_cannot_be_read_is_told(
    path: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path == "hangs":
        monkeypatch.setattr(fetch, "FETCH_SECONDS", 0.2)
    async with visitor(*WEB) as (one, where):
        result = await one.act(VISIT.format(f"{where}/{path}"))
    assert result.error.kind is ToolErrorKind.EXCEPTION
    assert says in said(result)
    assert result.valid


async def test_what_a_page_does_to_our_side_is_no_refusal_that_a_policy_could_bring_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def breaks(*_: object) -> None:
        raise RuntimeError("no client was ready for this")

    monkeypatch.setattr(fetch.Fetcher, "_get", breaks)
    async with visitor(*WEB) as (one, where):
        result = await one.act(VISIT.format(f"{where}/plain"))
    assert result.error.kind is ToolErrorKind.EXCEPTION
    assert said(result) == "the page is too large or too strange to be read"


@pytest.mark.parametrize(
    ("path", "begins"),
    [
        ("plain", "Blåbær"),
        ("away?to=/plain", "Blåbær"),
        ("endless", "The beginning of a text."),
        ("bomb", "The beginning of a text."),
    ],
)
async def test_a_page_is_read_within_its_bounds(path: str, begins: str) -> None:
    async with visitor(*WEB) as (one, where):
        result = await one.act(VISIT.format(f"{where}/{path}"))
    assert said(result).partition("\n")[2].startswith(begins), said(result)
    assert len(said(result)) < 4200


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:{port}/plain",
        "http://localhost:{port}/plain",
        "http://[::ffff:127.0.0.1]:{port}/plain",
        "http://0.0.0.0:{port}/plain",
        "http://localhost.:{port}/plain",
        "http://allowed.invalid@127.0.0.1:{port}/plain",
        "http://127.1:{port}/plain",
        "http://2130706433:{port}/plain",
        "http://169.254.169.254/latest/meta-data/",
    ],
)
async def test_the_operator_s_own_network_is_out_of_reach(address: str) -> None:
    asked = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text="secret")

    async with visitor(web.get("/plain", handler), allowed=False) as (one, where):
        port = where.rpartition(":")[2]
        result = await one.act(VISIT.format(address.format(port=port)))
    assert result.error is not None
    assert "secret" not in said(result)
    assert asked == []


async def test_a_page_of_the_public_web_needs_no_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "is_public", lambda address: address == "127.0.0.1")
    async with visitor(*WEB, allowed=False) as (one, where):
        assert "Blåbær" in said(await one.act(VISIT.format(f"{where}/away?to=/plain")))


async def test_a_redirect_of_an_allowed_host_leads_no_further_than_others() -> None:
    async with visitor(*WEB) as (one, where), serving(*WEB) as inner:
        to = f"http://127.0.0.1:{inner}/plain"
        result = await one.act(VISIT.format(f"{where}/away?to={to}"))
    assert said(result) == "the address is not of the public web"


async def test_a_page_that_takes_too_long_to_read_costs_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extract, "EXTRACT_SECONDS", 0.001)
    async with visitor(*WEB) as (one, where):
        visit = VISIT.format(f"{where}/endless")
        assert "too large or too strange" in said(await one.act(visit))
        monkeypatch.setattr(extract, "EXTRACT_SECONDS", 60)
        assert "The beginning" in said(await one.act(visit))
