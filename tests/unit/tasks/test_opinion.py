"""A model's opinion, from an endpoint that is made here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tasks.errors import JudgeDown
from tasks.judging import opinion
from tasks.judging.opinion import LONGEST, PROMPT, OpinionJudge, asked
from toolwright.process.backoff import Backoff


def test_what_a_policy_writes_fills_its_place_and_no_other() -> None:
    prompt = asked(PROMPT, "{golds}?", ["{answer}"], r"{question} \boxed{4 \n1}")
    assert "{golds}?" in prompt
    assert "- {answer}" in prompt
    assert "4 \\n1" in prompt
    assert "{question}" not in prompt, "the last box is the answer"
    mark = prompt.split("[")[1].split("\n")[0]
    assert prompt.count(mark) == 2
    assert len(asked("{answer}", "", [], "x" * 10**6)) < LONGEST + 100


@asynccontextmanager
async def endpoint(answer: Callable[[int], web.Response]) -> AsyncIterator[tuple[str, list[Any]]]:
    """An endpoint and the requests that it got; `answer` gets the request's number."""
    got: list[Any] = []

    async def complete(request: web.Request) -> web.Response:
        got.append(await request.json())
        return answer(len(got) - 1)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}/v1/", got
    finally:
        await runner.cleanup()


def said(text: Any) -> web.Response:
    return web.json_response({"choices": [{"message": {"content": text}}]})


async def test_a_verdict_is_counted_as_it_was_said() -> None:
    replies = ["fine\n1", "0", "maybe", None]
    async with (
        endpoint(lambda number: said(replies[number])) as (address, got),
        OpinionJudge(address, "judge") as judge,
    ):
        found = [await judge.opinion("q", ["a"], "b") for _ in replies]
        nobody = await judge.opinion("q", ["a"], None)
    assert [one.score for one in found] == [1, 0, 0, 0]
    assert [one.parsed for one in found] == [True, True, False, False]
    assert (nobody.score, nobody.parsed) == (0, True)
    assert judge.counts == {"asked": 4, "unparsable": 2}
    assert got[0]["temperature"] == 0
    assert len(got) == 4


async def test_an_endpoint_is_asked_again_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opinion, "BACKOFF", Backoff(0.001, 0.001))
    statuses = [503, 429, 200]
    async with (
        endpoint(
            lambda n: said("1") if statuses[n] == 200 else web.Response(status=statuses[n])
        ) as (address, _),
        OpinionJudge(address, "judge") as judge,
    ):
        assert (await judge.opinion("q", ["a"], "b")).score == 1
    assert judge.counts == {"asked": 1, "tried_again": 2}
    async with (
        endpoint(lambda n: web.Response(status=500, text="no room")) as (address, got),
        OpinionJudge(address, "judge", tries=3) as judge,
    ):
        with pytest.raises(JudgeDown, match="3 tries: status 500: no room"):
            await judge.opinion("q", ["a"], "b")
    assert len(got) == 3
    assert judge.counts["down"] == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (web.Response(status=401, text="who are you"), "401: who are you"),
        (web.Response(text="<html>"), "no chat completion"),
        (web.json_response({"choices": []}), "no chat completion"),
        (web.json_response([]), "no chat completion"),
        (web.json_response({"choices": [1]}), "no chat completion"),
        (web.Response(text="[" * 2_000_000), "no chat completion"),
    ],
)
async def test_what_is_no_judge_gives_no_verdict(answer: web.Response, says: str) -> None:
    async with (
        endpoint(lambda n: answer) as (address, got),
        OpinionJudge(address, "judge") as judge,
    ):
        with pytest.raises(JudgeDown, match=says):
            await judge.opinion("q", ["a"], "b")
    assert len(got) == 1, "asked again it would say the same"


async def test_nobody_there_is_down() -> None:
    async with OpinionJudge("http://127.0.0.1:9/v1", "judge", tries=1) as judge:
        with pytest.raises(JudgeDown):
            await judge.opinion("q", ["a"], "b")


async def test_a_silent_endpoint_is_down() -> None:
    never = asyncio.Event()

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await never.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with OpinionJudge(f"http://127.0.0.1:{port}", "j", seconds=0.2, tries=1) as judge:
        with pytest.raises(JudgeDown, match=r"no answer in 0\.2 s"):
            await judge.opinion("q", ["a"], "b")
    never.set()
    server.close()


def test_a_key_that_is_not_there_is_told_of_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(JudgeDown, match="JUDGE_KEY"):
        OpinionJudge("http://127.0.0.1:9", "judge", key_variable="JUDGE_KEY")


def refuses(key: str, message: str) -> Callable[[int], web.Response]:
    return lambda number: (
        said("1")
        if number
        else web.json_response({"error": {"message": message, "param": key}}, status=400)
    )


@pytest.mark.quick
@pytest.mark.parametrize(
    ("key", "message", "instead"),
    [
        ("max_tokens", "Unsupported parameter: 'max_tokens'", "max_completion_tokens"),
        ("temperature", "'temperature' does not support 0 with this model", ""),
    ],
)
async def test_a_key_that_the_judge_refuses_is_left_out(
    key: str, message: str, instead: str
) -> None:
    async with (
        endpoint(refuses(key, message)) as (address, got),
        OpinionJudge(address, "judge") as judge,
    ):
        for _ in range(2):
            assert (await judge.opinion("q", ["a"], "b")).score == 1
    assert [key in request for request in got] == [True, False, False]
    assert not instead or instead in got[-1]
    assert judge.counts == {"asked": 2}


@pytest.mark.quick
@pytest.mark.parametrize("end", ["", "/v1", "/v1/chat/completions"])
async def test_a_judge_is_found_by_any_spelling(end: str) -> None:
    content = [{"type": "thinking", "thinking": "0?"}, {"type": "text", "text": "1"}]
    async with endpoint(lambda _: said(content)) as (address, _):
        base = address.removesuffix("/v1/")
        async with OpinionJudge(base + end, "judge") as judge:
            assert (await judge.opinion("q", ["a"], "b")).score == 1


async def test_a_request_has_the_options_of_its_user() -> None:
    request = {"chat_template_kwargs": {"enable_thinking": False}, "temperature": None}
    async with (
        endpoint(lambda n: said("1")) as (address, got),
        OpinionJudge(address, "judge", request=request, reply_tokens=7) as judge,
        OpinionJudge(address, "judge") as plain,
    ):
        await judge.opinion("q", ["a"], "b")
        await plain.opinion("q", ["a"], "b")
    assert got[0]["chat_template_kwargs"] == {"enable_thinking": False}
    assert "temperature" not in got[0]
    assert got[0]["max_tokens"] == 7
    assert (got[1]["temperature"], got[1]["max_tokens"]) == (0, 4096)


@pytest.mark.parametrize("key", ["messages", "model", "stream", "n"])
def test_a_request_keeps_what_the_judge_reads(key: str) -> None:
    with pytest.raises(ValueError, match=f"judge.request names {key}"):
        OpinionJudge("http://127.0.0.1:9/v1", "judge", request={key: 1})


@pytest.mark.parametrize(
    ("content", "finish", "score", "unparsable"),
    [
        ("1", "stop", 1, 0),
        ("Step 1", "length", 0, 1),
        ("thinking about\n1", "length", 0, 1),
        ("<think>It may be 1", "stop", 0, 1),
        ("1", None, 1, 0),
    ],
)
async def test_a_reply_that_was_cut_is_unparsable(
    content: str, finish: str | None, score: int, unparsable: int
) -> None:
    choice = {"message": {"content": content}, "finish_reason": finish}
    async with (
        endpoint(lambda n: web.json_response({"choices": [choice]})) as (address, _),
        OpinionJudge(address, "judge") as judge,
    ):
        found = await judge.opinion("q", ["a"], "b")
    assert (found.score, judge.counts["unparsable"]) == (score, unparsable)
