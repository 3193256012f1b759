"""Pages that web_search opens, in a small web on loopback."""

import asyncio
import gzip
import socket
import threading
from typing import Any

import pytest
from aiohttp import web

from tests.support.trajectory import said
from tests.support.web import page, serving
from tests.support.web_policy import VISIT, visitor
from toolsvc.tools.web_search import extract, fetch
from toolwright.types import ToolErrorKind

pytestmark = pytest.mark.quick


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


async def loops(request: web.Request) -> web.Response:
    raise web.HTTPFound("/loops")


async def away(request: web.Request) -> web.Response:
    raise web.HTTPFound(request.query["to"])


WEB = [
    web.get(f"/{handler.__name__}", handler)
    for handler in (endless, bomb, hangs, picture, plain, loops, away)
]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("picture", "the page is image/png, not text"),
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
