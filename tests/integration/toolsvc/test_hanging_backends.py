"""Tools whose backend hangs: what every one of them owes to the policy, whatever the backend is.

- The run limit does not count the wait: an answer that comes late is the call's result.
- A backend that never answers is a refusal; nothing is recorded, and the call may come again.
- Whoever waits in line, or for another's equal question, is treated no worse.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import toolsvc.plugin.waiting
from tests.support.chat_endpoint import chat_endpoint
from tests.support.hosts import calling, opening, refused, said
from tests.support.web import hit, serving
from tests.unit.toolsvc.test_simulated_schemas import FILM
from toolsvc.errors import Reason
from toolsvc.host.host import Host
from toolsvc.plugin.registry import make_registered
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.loader import load_tools
from toolsvc.tools.web_search import fetch
from toolsvc.types import CallRequest, Running

pytestmark = pytest.mark.quick


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A host with one tool, an action for it, and its backend."""

    host: Host
    tool: str
    action: str
    backend: asyncio.Event
    """It answers nothing before this is set."""

    def call(self, name: str, session: str = "s", **more: Any) -> CallRequest:
        fields: dict[str, Any] = {
            "tool": self.tool,
            "action": self.action,
            "arguments": None,
            "run_limit": 0.2,
            "digest": name.encode(),
            **more,
        }
        return calling(name, session=session, **fields)


Serve = Callable[[Path], AbstractAsyncContextManager[Case]]

FILM_CALL = '<tool_call>{"name": "film", "arguments": {"title": "Lost"}}</tool_call>'


@asynccontextmanager
async def judge(folder: Path, **options: Any) -> AsyncIterator[Case]:
    references = folder / "references.jsonl"
    references.write_text(
        json.dumps({"question": "2 + 2?", "answer": "4"}) + "\n", encoding="utf-8"
    )
    async with chat_endpoint(lambda _: "1") as endpoint:
        endpoint.open.clear()
        given = {"endpoint": endpoint.url, "model": "tiny", "references": references, **options}
        async with Host([make_registered("judge", given, SandboxConfig())]) as host:
            action = "<finish>4</finish>"
            yield Case(host=host, tool="judge", action=action, backend=endpoint.open)


@asynccontextmanager
async def simulated(folder: Path, **options: Any) -> AsyncIterator[Case]:
    tools = folder / "tools.json"
    tools.write_text(json.dumps([FILM]), encoding="utf-8")
    async with chat_endpoint(lambda _: '{"year": 2003}') as endpoint:
        endpoint.open.clear()
        given = {"simulated": {"endpoint": endpoint.url, "model": "tiny", **options}}
        made = await load_tools([f"simulated:{tools}"], given, SandboxConfig())
        async with Host(made) as host:
            yield Case(host=host, tool="film", action=FILM_CALL, backend=endpoint.open)


@asynccontextmanager
async def inconsistent(folder: Path) -> AsyncIterator[Case]:
    async with simulated(folder, consistent=False) as case:
        yield case


@asynccontextmanager
async def web_search(action: str, options: Mapping[str, Any], waits: str) -> AsyncIterator[Case]:
    """`waits`: what of it hangs: "api", "page" or "summariser"."""
    free, hangs = asyncio.Event(), asyncio.Event()
    free.set()
    gates = {name: hangs if name == waits else free for name in ("api", "page", "summariser")}

    async def search(request: web.Request) -> web.Response:
        await gates["api"].wait()
        return web.json_response({"organic": [hit(f"http://127.0.0.1:{port}/")]})

    async def article(request: web.Request) -> web.Response:
        await gates["page"].wait()
        return web.Response(text="A text.", content_type="text/plain")

    async with (
        chat_endpoint(lambda _: "in short") as model,
        serving(web.get("/", article), web.post("/search", search)) as port,
    ):
        model.open = gates["summariser"]
        at = f"http://127.0.0.1:{port}"
        given = {"base_url": at, "key_variable": "", "allow_hosts": ("127.0.0.1",), **options}
        if options.get("pages"):
            given["summariser"] = {"endpoint": model.url, "model": "tiny"}
        async with Host([make_registered("web_search", given, SandboxConfig())]) as host:
            try:
                yield Case(host=host, tool="web_search", action=action.format(at), backend=hangs)
            finally:
                hangs.set()


SEARCH, VISIT = "<search> a </search>", "<visit> {}/ </visit>"
CASES: dict[str, Serve] = {
    "judge": judge,
    "simulated": simulated,
    "simulated, each call anew": inconsistent,
    "web_search, its api": lambda _: web_search(SEARCH, {}, "api"),
    "web_search, a page": lambda _: web_search(VISIT, {"visit": True}, "page"),
    "web_search, its summariser": lambda _: web_search(SEARCH, {"pages": 1}, "summariser"),
}
every_backend = pytest.mark.parametrize("serve", CASES.values(), ids=CASES.keys())


@every_backend
async def test_an_answer_that_comes_after_the_run_limit_is_the_result(
    serve: Serve, tmp_path: Path
) -> None:
    async with serve(tmp_path) as case:
        await case.host.open(opening())
        waits = await case.host.call(case.call("a", wait=0.4))
        assert isinstance(waits, Running), waits
        assert waits.queued > 0.2
        case.backend.set()
        answer = await case.host.call(case.call("a"))
        assert answer.result.error is None, answer.result
        assert answer.queued > 0.2
        assert answer.run < 0.2


@every_backend
async def test_a_backend_that_never_answers_is_a_refusal_and_the_call_may_come_again(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path) as case:
        await case.host.open(opening())
        with monkeypatch.context() as patch:
            patch.setattr(toolsvc.plugin.waiting, "WAIT_SECONDS", 0.3)
            with refused(Reason.BACKEND_DOWN) as failure:
                await case.host.call(case.call("a"))
        assert failure.value.retry_after is not None
        assert case.host.look("s").call_ids == ()
        case.backend.set()
        answer = await case.host.call(case.call("a"))
        assert answer.result.error is None, answer.result


@pytest.mark.parametrize("options", [{"timeout": 0.05, "retries": 0}], ids=["its own limit"])
async def test_a_try_that_takes_too_long_is_a_refusal(
    options: Mapping[str, Any], tmp_path: Path
) -> None:
    for serve in (judge, simulated):
        async with serve(tmp_path, **options) as case:
            await case.host.open(opening())
            with refused(Reason.BACKEND_DOWN) as failure:
                await case.host.call(case.call("a"))
            assert "model tiny at http://127." in failure.value.message


async def test_whoever_waits_in_line_for_a_place_is_answered(tmp_path: Path) -> None:
    async with judge(tmp_path, parallel=1, timeout=10.0) as case:
        calls = []
        for name in ("a", "b", "c"):
            await case.host.open(opening(name))
            action = f"<finish>{name}</finish>"
            calls.append(case.call(name, session=name, action=action, wait=0.3))
        assert all(
            isinstance(one, Running) for one in await asyncio.gather(*map(case.host.call, calls))
        )
        case.backend.set()
        for answer in await asyncio.gather(*map(case.host.call, calls)):
            assert said(answer) == "The answer was handed in."


async def test_whoever_joins_an_equal_question_waits_as_its_first_asker_does(
    tmp_path: Path,
) -> None:
    async with simulated(tmp_path) as case:
        for name in ("a", "b"):
            await case.host.open(opening(name))
        first = asyncio.create_task(case.host.call(case.call("1", session="a", wait=5.0)))
        joined = case.call("1", session="b", wait=0.4)
        assert isinstance(await case.host.call(joined), Running)
        assert case.host.cancel("a", "1")  # whoever asked first is gone; the question is not
        await first
        assert isinstance(await case.host.call(joined), Running)
        case.backend.set()
        assert said(await case.host.call(joined)) == '{"year": 2003}'


async def test_a_page_is_not_called_slow_because_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "FETCH_SECONDS", 0.1)
    monkeypatch.setattr(fetch, "_AT_ONCE_OF_A_HOST", 1)

    async def article(request: web.Request) -> web.Response:
        if request.query:
            await asyncio.Event().wait()
        return web.Response(text="Here.")

    async with serving(web.get("/", article)) as port:
        at = f"http://127.0.0.1:{port}"
        options = {"visit": True, "allow_hosts": ("127.0.0.1",), "key_variable": ""}
        async with Host([make_registered("web_search", options, SandboxConfig())]) as host:
            await host.open(opening())
            case = Case(host=host, tool="web_search", action="", backend=asyncio.Event())
            urls = [*(f"{at}/?{number}" for number in range(3)), f"{at}/"]
            *slow, good = await asyncio.gather(
                *(host.call(case.call(url, action=f"<visit> {url} </visit>")) for url in urls)
            )
        assert ["did not come within 0.1 s" in said(one) for one in slow] == [True] * 3
        assert said(good).endswith("Here.")
