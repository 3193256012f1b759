"""The browser tool: a real Chromium and pages on loopback."""

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from typing import Any

import psutil
import pytest
import pytest_asyncio

from tests.support.site import Listener, Site, site
from tests.support.surfer import Surfer, serving
from tests.support.waiting import until
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.host.host import Host
from toolsvc.sandbox.config import Backend, SandboxConfig
from toolsvc.sandbox.plan import find_account
from toolsvc.types import Media, Text
from toolwright.types import ToolErrorKind

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def pages() -> Iterator[Site]:
    with site() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(pages: Site) -> AsyncIterator[Host]:
    async with serving(pages.address) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def policy(browser: Host, pages: Site) -> AsyncIterator[Surfer]:
    async with Surfer(browser, pages) as surfer:
        yield surfer


async def test_a_form_is_read_filled_and_sent(policy: Surfer, pages: Site) -> None:
    seen = await policy.go("/form")
    assert seen.startswith(f"Page: Form\nURL: {pages.url('/form')}\n")
    await policy.do("type", ref=policy.ref('textbox "Name"'), text="Ada")
    await policy.do("type", ref=policy.ref('combobox "Colour"'), text="blue")
    assert "Ada and blue" in await policy.click('button "Send"')
    await policy.do("back")
    seen = await policy.do("type", ref=policy.ref("textbox"), text="Bo", submit=True)
    assert "Bo and " in seen
    assert "Ada" not in seen


async def test_frames_are_read_and_what_a_click_fetches_is_waited_for(policy: Surfer) -> None:
    await policy.go("/frame")
    assert 'button "pressed"' in await policy.click('button "press"')
    assert "nothing yet" in await policy.go("/later")
    assert "it came" in await policy.click('button "ask"')


async def test_windows_and_the_way_back(policy: Surfer) -> None:
    await policy.go("/hello")
    assert "The second page" in await policy.click('link "second"')
    assert "A page." in await policy.do("back")
    seen = await policy.click('link "in a new window"')
    assert "[this is another window than before]\n" in seen
    assert "The second page" in seen
    assert "A page." in await policy.do("back")
    await policy.do("back")
    assert "no page to go back to" in await policy.fail("back")
    await policy.go("/windows")
    for _ in range(3):
        await policy.click('link "more"')
    assert "4 windows are open already" in await policy.click('link "more"')


async def test_dialogs_are_answered_and_told(policy: Surfer) -> None:
    await policy.go("/dialog")
    seen = await policy.click('button "ask"')
    assert seen.startswith("Page: true Ada\n")
    assert '[confirm "Sure?" was answered with OK]\n[prompt "Name?" was answered' in seen


async def test_a_long_page_is_read_in_pieces(policy: Surfer, pages: Site) -> None:
    result = await policy.act("navigate", url=pages.url("/long"))
    assert result.truncated
    assert len(policy.seen) < 8300
    await policy.do("read", start=8000)
    assert "line 0 of" not in policy.seen
    assert "[characters 8000 to 16000 of " in policy.seen


async def test_a_screenshot_is_the_window(policy: Surfer, pages: Site) -> None:
    await policy.go("/tall")
    text, image = (await policy.act("screenshot")).observation
    assert text == Text(text=f"Page: Tall\nURL: {pages.url('/tall')}")
    assert isinstance(image, Media)
    assert image.media_type == "image/png"
    assert struct.unpack(">II", image.data[16:24]) == (1280, 720)


async def test_what_cannot_be_done_is_said(policy: Surfer, pages: Site) -> None:
    await policy.go("/stuck")
    assert "intercepts pointer events" in await policy.fail("click", ref=policy.ref("button"))
    assert "there is no element e999" in await policy.fail("click", ref="e999")
    assert "[HTTP status 404]" in await policy.go("/nothing")
    assert "no page but a download" in await policy.fail("navigate", url=pages.url("/download"))


NOBODY_MAY_OPEN = [
    "file:///etc/passwd",
    "data:text/html,<h1>x",
    "chrome://version",
    "about:blank",
    "javascript:alert(1)",
    "view-source:http://{host}/hello",
    "blob:http://{host}/x",
    "ftp://{host}/",
    "http://{host}@example.org/",
    "http://localhost/",
    "http://127.0.0.1:1/",
    "hello",
]


async def test_addresses_that_nobody_may_open(policy: Surfer, pages: Site) -> None:
    for url in NOBODY_MAY_OPEN:
        seen = await policy.fail("navigate", url=url.format(host=pages.address))
        assert "cannot be opened" in seen


async def test_a_page_cannot_leave_the_web(policy: Surfer) -> None:
    for way in ('link "file"', 'link "chrome"', 'button "open"', 'button "data"'):
        await policy.go("/escape")
        await policy.act("click", ref=policy.ref(way))
        seen = await policy.do("read")
        assert "here" in seen or "about:blank" in seen
        assert "root:" not in seen
    seen = await policy.go("/file-frame")
    assert "here" in seen
    assert "root:" not in seen


ON_A_PAGE = {
    "style": '<link rel="stylesheet" href="{url}">',
    "image": '<img src="{url}">',
    "frame": '<iframe src="{url}"></iframe>',
    "fetch": "<script>fetch(`{url}`, {{mode: 'no-cors'}})</script>",
    "beacon": "<script>navigator.sendBeacon(`{url}`)</script>",
    "events": "<script>new EventSource(`{url}`)</script>",
    "socket": "<script>new WebSocket(`{url}`.replace('http', 'ws'))</script>",
    "worker": """<script>new Worker(URL.createObjectURL(new Blob(
        ["fetch('{url}', {{mode: 'no-cors'}})"], {{type: 'text/javascript'}})))</script>""",
    "turn": """<script>{{const c = new RTCPeerConnection({{iceServers: [{{
        urls: `{url}`.replace('http://', 'turn:').replace('/x', '') + '?transport=tcp',
        username: 'u', credential: 'c'}}]}});
        c.createDataChannel('d'); c.createOffer().then(o => c.setLocalDescription(o))}}</script>""",
}
"""How a page makes a browser connect somewhere while it stays."""
GOING_AWAY = {
    "redirect": "",
    "refresh": '<meta http-equiv="refresh" content="0; url={url}">',
    "link": '<a href="{url}">go</a>',
    "window": '<a href="{url}" target="_blank">go</a>',
    "script": '<button onclick="location = `{url}`">go</button>',
    "form": '<form action="{url}" method="post"><button>go</button></form>',
}
"""How it leads there."""


@contextlib.contextmanager
def listening() -> Iterator[dict[str, Listener]]:
    """One for each way."""
    with contextlib.ExitStack() as stack:
        yield {way: stack.enter_context(Listener()) for way in (*ON_A_PAGE, *GOING_AWAY)}


async def stay(policy: Surfer, listeners: dict[str, Listener]) -> None:
    """On a page that connects in every way it can."""
    snippets = [snippet.format(url=listeners[way].url) for way, snippet in ON_A_PAGE.items()]
    policy.pages.pages["/ways"] = "".join(snippets)
    await policy.act("navigate", url=policy.pages.url("/ways"))


async def go_away(policy: Surfer, way: str, url: str) -> None:
    if way == "redirect":
        await policy.act("navigate", url=policy.pages.url(f"/redirect?to={url}"))
        return
    policy.pages.pages[f"/{way}"] = f"<title>{way}</title>{GOING_AWAY[way].format(url=url)}"
    await policy.act("navigate", url=policy.pages.url(f"/{way}"))
    if way == "refresh":
        return
    goes = f'{"button" if "<button" in GOING_AWAY[way] else "link"} "go"'
    if goes not in policy.seen:  # the window of the way before opened only now
        await policy.act("navigate", url=policy.pages.url(f"/{way}"))
    await policy.act("click", ref=policy.ref(goes))


async def test_a_host_off_the_list_is_never_reached(policy: Surfer) -> None:
    with listening() as forbidden:
        await stay(policy, forbidden)
        for way in GOING_AWAY:
            await go_away(policy, way, forbidden[way].url)
        await policy.act("read")
        assert [way for way, listener in forbidden.items() if listener.reached()] == []


async def test_the_same_ways_lead_to_a_host_on_the_list(pages: Site) -> None:
    """Otherwise the test above would show nothing."""
    with listening() as wanted:
        allowed = [listener.address for listener in wanted.values()]
        async with serving(pages.address, *allowed) as host, Surfer(host, pages) as policy:
            await until_reached(policy, stay(policy, wanted), wanted, ON_A_PAGE)
            for way in GOING_AWAY:
                going = go_away(policy, way, wanted[way].url)
                await until_reached(policy, going, wanted, (way,))


async def until_reached(
    policy: Surfer,
    going: Coroutine[Any, Any, None],
    listeners: dict[str, Listener],
    ways: Iterable[str],
) -> None:
    """Nobody answers there, so that the call would take its full time."""
    task = asyncio.create_task(going)
    try:
        for way in ways:
            assert await asyncio.to_thread(listeners[way].reached, 20), way
    finally:
        policy.trajectory.cancel()
        await task


async def test_packets_of_calls_go_nowhere(policy: Surfer, pages: Site) -> None:
    with Listener() as forbidden:
        pages.pages["/stun"] = f"""<p id="p"></p><script>
            const c = new RTCPeerConnection({{iceServers: [{{urls: 'stun:{forbidden.address}'}}]}});
            c.onicegatheringstatechange = () => p.append(c.iceGatheringState + '. ');
            c.createDataChannel('d');
            c.createOffer().then(o => c.setLocalDescription(o))</script>"""
        await policy.go("/stun")
        async with asyncio.timeout(30):
            while "complete" not in policy.seen:
                await policy.do("read")
        assert not forbidden.reached()


async def test_downloads_permissions_and_service_workers_are_off(policy: Surfer) -> None:
    await policy.go("/powers")
    seen = await policy.do("read")
    assert "geolocation denied" in seen
    assert "worker active" not in seen
    assert "[object ServiceWorker]" not in seen


async def test_a_page_that_computes_for_ever_is_stopped(policy: Surfer) -> None:
    await policy.go("/hello")
    await policy.go("/busy")
    result = await policy.act("click", ref=policy.ref("button"), limits={"run_limit": 2.0})
    assert result.error.kind is ToolErrorKind.TIMEOUT
    seen = await policy.do("read")
    assert "[the page did not stop, and was closed]" in seen
    assert "URL: about:blank" in seen
    assert "A page." in await policy.go("/hello")


async def test_a_hungry_page_is_killed_and_its_session_goes_on(pages: Site) -> None:
    async with serving(pages.address, page_mib=192) as host:
        hungry, other = Surfer(host, pages), Surfer(host, pages)
        await other.go("/count")
        await hungry.go("/count")
        await hungry.go("/hungry")
        await hungry.act("click", ref=hungry.ref("button"))
        async with asyncio.timeout(30):
            while "held too much memory" not in hungry.seen:
                await hungry.act("read")
        assert "Page: 1\n" in await hungry.go("/counted")
        assert "Page: 1\n" in await other.go("/counted")


@pytest.mark.parametrize("path", ["/hoarder", "/cacher"])
async def test_an_overgrown_browser_ends_with_its_sessions_and_no_others(
    pages: Site, path: str
) -> None:
    async with serving(pages.address, shared_mib=128, per_browser=1) as host:
        hoarder, other = Surfer(host, pages), Surfer(host, pages)
        await other.go("/count")
        await hoarder.go(path)
        with pytest.raises(Refused) as failure:
            await hoarder.act("click", ref=hoarder.ref("button"))
            async with asyncio.timeout(50):
                while True:
                    await hoarder.act("read")
        assert failure.value.reason is Reason.SESSION_LOST
        assert "Page: 1\n" in await other.go("/counted")
        assert "A page." in await Surfer(host, pages).go("/hello")


async def test_what_pages_would_draw_in_a_process_that_all_share_is_off(policy: Surfer) -> None:
    assert "webgl is not. webgl2 is not. 2d is there." in await policy.go("/3d")


def children(name: str) -> list[psutil.Process]:
    """Those of this process that live and are called so."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name().startswith(name) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@pytest.mark.parametrize("victim", ["chromium", "node"])
async def test_a_dead_browser_loses_its_sessions_and_no_others(pages: Site, victim: str) -> None:
    before = {process.pid for process in (*children("chromium"), *children("node"))}
    async with serving(pages.address) as host:
        first, idle = Surfer(host, pages), Surfer(host, pages)
        await first.go("/hello")
        await idle.trajectory.open()
        with pages.holding() as asked:
            call = asyncio.create_task(first.go("/held"))
            assert await asyncio.to_thread(asked.wait, 20)
            for process in children(victim):
                if process.pid not in before:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
            with pytest.raises(Refused) as failure:
                await call
        assert failure.value.reason is Reason.SESSION_LOST
        with pytest.raises(Refused) as failure:
            await first.act("read")
        assert failure.value.reason is Reason.SESSION_LOST
        assert "A page." in await idle.go("/hello")
        assert "A page." in await Surfer(host, pages).go("/hello")

    def left() -> set[int]:
        return {process.pid for process in (*children("chromium"), *children("node"))} - before

    await until(lambda: not left(), "every process of the browser has ended")


async def test_sessions_above_the_bound_wait_and_browsers_come_and_go(pages: Site) -> None:
    async with serving(pages.address, sessions=2, per_browser=1) as host:
        first, second, third = (Surfer(host, pages) for _ in range(3))
        await first.go("/hello")
        await second.go("/hello")
        assert figures(host) == (2, 2)
        with pytest.raises(Refused) as failure:
            await third.act("read", limits={"queue_limit": 0.2})
        assert failure.value.reason is Reason.QUEUE_LIMIT
        await first.trajectory.close()
        assert figures(host) == (1, 1)
        assert "A page." in await third.go("/hello")
        await third.trajectory.close()
        await second.trajectory.close()
        assert figures(host) == (1, 0)


def figures(host: Host) -> tuple[float, float]:
    tool = host._tools["browser"]
    return tool.figures()["browsers"], tool.figures()["browser_sessions"]


async def test_pages_are_confined_in_an_account_of_their_own(policy: Surfer, browser: Host) -> None:
    """Its own where the service is root; else one account has everything."""
    assert browser.isolation == "full"
    await policy.go("/hello")
    accounts = {process.uids() for process in children("chromium")}
    assert accounts
    rooted = os.geteuid() == 0
    assert not rooted or all(0 not in uids for uids in accounts)
    sandbox = find_account(SandboxConfig())
    assert (sandbox.uid in {uids.real for uids in accounts}) != rooted


async def test_without_a_sandbox_only_where_it_is_said_twice(pages: Site) -> None:
    once = SandboxConfig(backend=Backend.NONE)
    with pytest.raises(StartError, match="takes both --sandbox none and"):
        async with serving(pages.address, sandbox=once):
            pass
    twice = SandboxConfig(backend=Backend.NONE, allow_unsandboxed=True)
    async with serving(pages.address, sandbox=twice) as host:
        assert host.isolation == "none"
        assert "A page." in await Surfer(host, pages).go("/hello")
