"""The scripted sampler's log holds every id that left, and becomes events of a history."""

from __future__ import annotations

from array import array
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from bench.history.events import Loaded, Sampled
from bench.history.sampler_log import SamplerLog, sampled
from bench.scripted import Break, BreakHow, Faults, ScriptedSampler, Timing, replies
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

OLD, NEW = WeightVersion(lineage="a", step=1), WeightVersion(lineage="a", step=2)


def replies_of(file: Path) -> list[tuple[str, list[int], list[int], WeightVersion, bool]]:
    return [
        (one.attempt, one.prompt.tolist(), one.token_ids.tolist(), one.version, one.exact)
        for one in sampled(file, "s")
        if isinstance(one, Sampled)
    ]


async def ask(url: str, rid: str, prompt: list[int]) -> None:
    body = {
        "rid": rid,
        "input_ids": prompt,
        "routing_key": "g0000000-0/b1r0a0",
        "stream": True,
        "sampling_params": {"max_new_tokens": 50, "stop_token_ids": [2]},
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/generate", json=body) as answer,
    ):
        with suppress(aiohttp.ClientError):
            await answer.read()


@pytest.mark.parametrize("incremental", [True, False])
async def test_a_reply_is_logged_whole_and_a_broken_one_as_far_as_it_came(
    tmp_path: Path, incremental: bool
) -> None:
    log = SamplerLog(tmp_path / "log")
    async with ScriptedSampler(
        script=replies([[5, 6, 7, 8, 2]]),
        timing=Timing(tokens_per_second=500, tokens_per_chunk=2),
        faults=Faults(breaks={1: Break(chunks=1, how=BreakHow.CUT)}),
        incremental=incremental,
        weight_version=str(OLD),
        log=log,
    ) as sampler:
        await ask(sampler.url, "r0", [1])
        await ask(sampler.url, "r1", [1, 5, 6, 7, 8, 2, 9])
    log.close()
    attempt = "g0000000-0/b1r0a0"
    assert replies_of(tmp_path / "log") == [
        (attempt, [1], [5, 6, 7, 8, 2], OLD, True),
        (attempt, [1, 5, 6, 7, 8, 2, 9], [5, 6], OLD, False),
    ]


def test_a_reply_of_two_versions_is_two_events(tmp_path: Path) -> None:
    log = SamplerLog(tmp_path / "log")
    log.began("r", "t/a", [1])
    log.sends("r", str(OLD), [5, 6])
    log.loaded(str(NEW))
    log.sends("r", str(NEW), [7])
    log.over("r")
    log.began("q", "t/b", [3])
    log.sends("q", "default", [4])
    log.close()
    assert replies_of(tmp_path / "log") == [
        ("t/a", [1], [5, 6], OLD, True),
        ("t/a", [1, 5, 6], [7], NEW, True),
    ]
    events = sampled(tmp_path / "log", "s")
    assert [type(one) for one in events] == [Sampled, Loaded, Sampled]
    assert events[1] == Loaded(at=events[1].at, server="s", version=NEW)
    first, _, second = events
    assert isinstance(first, Sampled)
    assert isinstance(second, Sampled)
    assert first.began is not None
    assert first.began < first.at == second.began
    assert second.prompt == array("i", [1, 5, 6])


def test_half_of_a_last_line_is_left_out(tmp_path: Path) -> None:
    log = SamplerLog(tmp_path / "log")
    log.began("r", "t/a", [1])
    log.sends("r", str(OLD), [5])
    log.sends("r", str(OLD), [6])
    log.close()
    data = (tmp_path / "log").read_bytes()
    (tmp_path / "log").write_bytes(data[:-4])
    assert replies_of(tmp_path / "log") == [("t/a", [1], [5], OLD, False)]
    assert sampled(tmp_path / "absent", "s") == []
