"""The scripted player behind `simulated:`, and what it is told: never a gold answer."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import web

from tasks.judging import words
from tasks.worlds.encyclopedia import Encyclopedia, Question
from tests.support.hosts import calling, opening
from tests.support.recipes import Part
from toolsvc.host.host import Host
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.simulated.options import SimulatedOptions
from toolsvc.sources.simulated.source import SimulatedSource
from toolsvc.types import Recorded, Text

QUESTIONS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """host: tools that the player makes and plays. told: the bodies of its requests, and what it
    answered to each."""

    host: Host
    url: str
    told: list[tuple[str, str]]


@asynccontextmanager
async def playing(part: Part, **options: Any) -> AsyncIterator[Played]:
    told: list[tuple[str, str]] = []

    @web.middleware
    async def recorded(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        answer = await handler(request)
        if request.method == "POST" and isinstance(answer, web.Response):
            body = (await request.read()).decode(errors="replace")
            told.append((body, str(answer.text)))
        return answer

    app = part("world/player.application")()
    app.middlewares.append(recorded)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        given = {"endpoint": f"{url}/v1", "model": "player", "retries": 0, **options}
        tools = await SimulatedSource.tools(
            "", SimulatedOptions.model_validate(given), SandboxConfig()
        )
        async with Host(tools) as host:
            yield Played(host=host, url=url, told=told)
    finally:
        await runner.cleanup()


async def observed(
    here: Played, session: str, tool: str, turn: int, arguments: Mapping[str, str]
) -> Any:
    """The observation of a call."""
    request = calling(
        f"{session}-{turn}",
        session=session,
        turn=turn,
        tool=tool,
        arguments=dict(arguments),
        digest=f"{session} {turn}".encode(),
    )
    answer = await here.host.call(request)
    assert isinstance(answer, Recorded)
    (said,) = answer.result.observation
    assert isinstance(said, Text)
    return json.loads(said.text)


def spellings(gold: str) -> set[str]:
    """Ways to write an answer down, in lower case."""
    plain = words.normalise(gold)
    found = {gold, gold[::-1], plain, plain.replace(" ", ""), "_".join(plain.split())}
    found |= {"-".join(plain.split()), quote(gold), json.dumps(gold), gold.encode().hex()}
    found |= {base64.b64encode(one.encode()).decode() for one in (gold, plain)}
    return {one.lower() for one in found}


def questions(part: Part) -> list[Question]:
    task = {name: part(f"world/task.{name}") for name in ("ENCYCLOPEDIA", "SHAPE")}
    book = Encyclopedia(task["ENCYCLOPEDIA"], task["SHAPE"])
    return list(islice(book.questions("train", (1, 2)), QUESTIONS))


async def test_no_request_holds_the_gold_answer_in_any_spelling(part: Part) -> None:
    """But where the agent wrote it, or the actor itself had said so before: it is shown what it
    answered. The metadata of the task have the answer under every usual name here."""
    asked = questions(part)
    searched = actors = 0
    async with playing(part, consistent=False) as here:
        for number, question in enumerate(asked):
            gold = question.answers[0]
            metadata = {
                "question": question.text,
                **dict.fromkeys(("answer", "gold", "target", "label"), gold),
                "answers": list(question.answers),
                "chain": list(question.chain),
            }
            name, begun = f"s{number}", len(here.told)
            opened = await here.host.open(opening(name, metadata=metadata))
            written: list[str] = []
            calls = [*zip(question.path, question.chain, strict=False)]
            for turn, (relation, about) in enumerate([*calls, calls[0]]):
                tool = next(
                    one
                    for one in opened.tools
                    if relation in (one.output_schema or {}).get("properties", {})
                )
                wanted = tool.arguments_schema["properties"]
                arguments = {key: one.get("enum", [about])[0] for key, one in dict(wanted).items()}
                written += arguments.values()
                found = await observed(here, name, tool.name, turn, arguments)
                assert relation in found, found
            known = " ".join(written).lower()
            for body, answer in here.told[begun:]:
                searched += 1
                is_actor = "You play a tool" in body
                actors += is_actor
                assert not (is_actor and question.text in body), "nor the question"
                for one in spellings(gold):
                    assert one not in body.lower() or one in known, (gold, body)
                known += answer.lower()
    assert searched > 3 * QUESTIONS
    assert actors > 2 * QUESTIONS


async def test_the_search_would_find_a_leak(part: Part) -> None:
    """A question that tells its answer is found by the same look."""
    gold = questions(part)[0].answers[0]
    async with playing(part) as here:
        told = {"question": f"Is it {gold.upper()}? Who governs Norwick?"}
        await here.host.open(opening("s", metadata=told))
    assert any(one in here.told[0][0].lower() for one in spellings(gold))


async def test_what_does_not_fit_is_refused_and_then_right(part: Part) -> None:
    """An edition that is wrong never reaches the player; an observation without its value is asked
    for again, and the agent sees none of it."""
    async with playing(part) as here:
        empty = 0
        for number, question in enumerate(questions(part)):
            name, about = f"s{number}", question.chain[0]
            opened = await here.host.open(opening(name, metadata={"question": question.text}))
            for turn, tool in enumerate(opened.tools):
                (first, *more) = dict(tool.arguments_schema)["required"]
                before = len(here.told)
                arguments = {first: about, **dict.fromkeys(more, "tenth")}
                found = await observed(here, name, tool.name, turn, arguments)
                if more:
                    assert found["error"]["stage"] == "pre"
                    assert len(here.told) == before
                else:
                    assert "error" not in found
        empty = sum("This does not do" in body for body, _ in here.told)
    assert empty


async def test_without_the_checks_wrong_facts_come_back(part: Part) -> None:
    async with playing(part, pre_check=False, post_check=False) as here:
        seen = []
        for number, question in enumerate(questions(part)):
            name = f"s{number}"
            opened = await here.host.open(opening(name, metadata={"question": question.text}))
            tool = opened.tools[0]
            found = await observed(here, name, tool.name, 0, {"nonsense": "x"})
            seen.append(found)
        assert {} in seen
        assert any(found and "unknown" not in found.values() for found in seen)
        assert not any("error" in found for found in seen)


async def test_any_request_is_answered(part: Part) -> None:
    bodies: list[tuple[Any, int]] = [
        ("{", 400),
        ("[]", 400),
        ('{"messages": 7}', 400),
        ("[" * 100_000, 400),
        ("\xff".encode("latin-1"), 400),
        (json.dumps({"messages": ["x", None, {"role": "user", "content": 7}]}), 200),
        (json.dumps({"messages": []}), 200),
        *(
            (json.dumps({"messages": [{"role": "user", "content": text}]}), 200)
            for text in (
                "Who governs Norwick?", "Tool:\n", "Tool:\n{", "Tool:\n[]\n\nArguments:\n{}",
                "Tool:\n{}\n\nArguments:\n[]", 'Tool:\n{"returns": 7}\n\nArguments:\n{}',
                "Tool:\n" + "[" * 100_000 + "\n\nArguments:\n{}", "Question:\n", "Question:\r\n",
            )
        ),
        ("x" * (1 << 21), 413),
    ]  # fmt: skip
    async with playing(part) as here, aiohttp.ClientSession() as session:
        for body, status in bodies:
            kind = {"Content-Type": "application/json"}
            url = f"{here.url}/v1/chat/completions"
            async with session.post(url, data=body, headers=kind) as answer:
                assert answer.status == status, body[:80]
        async with session.get(f"{here.url}/health") as answer:
            assert answer.status == 200
        async with session.get(f"{here.url}/v1/models") as answer:
            assert (await answer.json())["data"][0]["id"] == "player"


async def test_a_stream_says_the_same(part: Part) -> None:
    """`engine eval --api openai-chat` asks for one: the actor's closed-book answer."""
    asked = {"messages": [{"role": "user", "content": "Who governs Norwick?"}]}
    async with playing(part) as here, aiohttp.ClientSession() as session:
        url = f"{here.url}/v1/chat/completions"
        async with session.post(url, json=asked) as answer:
            whole = (await answer.json())["choices"][0]["message"]["content"]
        async with session.post(url, json={**asked, "stream": True}) as answer:
            assert answer.content_type == "text/event-stream"
            first, last, rest = (await answer.text()).split("\n\n")
    assert json.loads(first.removeprefix("data: "))["choices"][0]["delta"]["content"] == whole
    assert (last, rest) == ("data: [DONE]", "")


def test_closed_book_it_knows_nothing(part: Part) -> None:
    """Its exact match without tools is 0, which is printed beside the policy's."""
    player = part("world/player.Player")(None)
    asked = [{"role": "user", "content": "Who governs Norwick?"}]
    assert player.reply(asked).endswith("<answer>unknown</answer>")


@pytest.mark.parametrize("address", ["0.0.0.0:1", "far.example:1", "127.0.0.1", "127.0.0.1:x"])
def test_it_listens_on_loopback_alone(part: Part, address: str) -> None:
    with pytest.raises(SystemExit, match=r"127\.0\.0\.1:PORT"):
        part("world/player.main")(listen=address)
