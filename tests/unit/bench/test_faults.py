"""Faults are spelt on the command line, and happen to the requests they name."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from bench.scripted import Break, BreakHow, Faults, ScriptedSampler, Timing, replies
from bench.scripted.faults import parse_break, parse_numbers


def body(rid: str = "r") -> dict[str, Any]:
    return {
        "rid": rid,
        "input_ids": [1, 2],
        "stream": True,
        "sampling_params": {"max_new_tokens": 9},
    }


def faulty(faults: Faults) -> ScriptedSampler:
    return ScriptedSampler(
        script=replies([list(range(10, 18))]), timing=Timing(tokens_per_second=500), faults=faults
    )


async def events(session: aiohttp.ClientSession, url: str, rid: str = "r") -> list[bytes]:
    async with session.post(url + "/generate", json=body(rid)) as answer:
        return [line.strip() async for line in answer.content if line.startswith(b"data: ")]


def test_breaks_on_the_command_line() -> None:
    assert parse_break("3:10") == (3, Break(chunks=10))
    assert parse_break("0:0:error") == (0, Break(chunks=0, how=BreakHow.ERROR))
    for bad in ("3", "a:1", "1:b", "1:2:bang"):
        with pytest.raises(ValueError, match="REQUEST:CHUNKS"):
            parse_break(bad)


def test_numbers_on_the_command_line() -> None:
    assert parse_numbers("3") == {3}
    assert parse_numbers("3-5") == {3, 4, 5}
    for bad in ("", "a", "1-", "-1"):
        with pytest.raises(ValueError, match="FROM-TO"):
            parse_numbers(bad)


async def test_only_the_named_request_is_cut() -> None:
    async with faulty(Faults(breaks={1: Break(chunks=3)})) as s, aiohttp.ClientSession() as c:
        assert len(await events(c, s.url, "a")) == 9
        with pytest.raises(aiohttp.ClientPayloadError):
            await events(c, s.url, "b")
        assert len(await events(c, s.url, "d")) == 9


async def test_refused_connections_and_the_record() -> None:
    async with faulty(Faults(refuse=frozenset({0}))) as s, aiohttp.ClientSession() as c:
        with pytest.raises(aiohttp.ClientError):
            await events(c, s.url, "a")
        assert len(await events(c, s.url, "b")) == 9
        assert [seen.rid for seen in s.requests] == ["a", "b"]


async def test_a_broken_reply_resumes_with_the_tokens_received() -> None:
    async with faulty(Faults(breaks={0: Break(chunks=3)})) as s, aiohttp.ClientSession() as c:
        with pytest.raises(aiohttp.ClientPayloadError):
            await events(c, s.url, "t.0")
        rest = {**body("t.1"), "input_ids": [1, 2, 10, 11, 12], "stream": False}
        async with c.post(s.url + "/generate", json=rest) as answer:
            assert (await answer.json())["output_ids"] == [13, 14, 15, 16, 17]
