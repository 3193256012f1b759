"""A run that publishes adapters: loaded beside what is sampled, named by requests, unloaded."""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from safetensors.numpy import save_file

from bench.scripted import ScriptedSampler, Timing
from engine.core.sampler.retry import Fault
from engine.errors import StartupError
from tests.integration.engine.conftest import MakeWorld, World
from tests.integration.engine.test_publish import RUN, refused, sampler_version
from tests.support.adapters import write_adapter
from tests.support.engines import Running
from tests.support.tools import held
from tests.support.waiting import until
from toolwright.common.v1 import reasons_pb2 as reasons

pytestmark = pytest.mark.quick

ADAPTERS = {**RUN, "publish_adapters": True}
AHEAD = {**ADAPTERS, "steps": 99, "max_staleness": 8, "correction": "decoupled"}
INVALID = reasons.ERROR_REASON_INVALID_REQUEST
STEM = "model.layers.0.self_attn.q_proj"


@pytest.fixture
def policy(policy_folder: Path, tmp_path: Path) -> Path:
    """The policy with one matrix [8, 4]."""
    folder = tmp_path / "policy"
    shutil.copytree(policy_folder, folder)
    save_file({f"{STEM}.weight": np.zeros((8, 4), np.float32)}, folder / "model.safetensors")
    return folder


def adapter(here: World, name: str) -> Path:
    """A folder with an adapter of that policy."""
    folder = here.folder / "adapters" / name
    return write_adapter(Path(here.tables["policy"]["model"]), folder, seed=1)


@asynccontextmanager
async def engine(
    world: MakeWorld, policy: Path, timing: Timing | None = None, **run: object
) -> AsyncIterator[tuple[World, Running]]:
    """A world whose sampler takes adapters, and its engine."""
    here = await world(policy=policy, takes_adapters=True, timing=timing, run={**ADAPTERS, **run})
    async with here.engine() as running:
        yield here, running


def named(sampler: ScriptedSampler) -> list[object]:
    """The adapter that each request named, None without."""
    return [one.body.get("lora_path") for one in sampler.requests]


async def test_requests_name_the_adapter_of_their_version(world: MakeWorld, policy: Path) -> None:
    async with engine(world, policy) as (here, run):
        (first,) = await run.learner.lease(run.version)
        before = len(named(here.sampler))
        assert set(named(here.sampler)) == {None}
        version, folder = run.at(1), adapter(here, "1")
        answer = await run.learner.publish(version, folder)
        assert answer.samplers == 1
        assert answer.paused.ToTimedelta().total_seconds() == 0
        assert here.sampler.adapters == {str(version): str(folder)}
        assert sampler_version(here) == str(version)
        (second,) = await run.learner.lease(version, after=first.info.sequence_number)
        assert set(named(here.sampler)[before:]) == {str(version)}
        assert second.members[0].weight_versions == (version,)


async def test_ten_publishes_leave_one_adapter(world: MakeWorld, policy: Path) -> None:
    async with engine(world, policy) as (here, run):
        await run.learner.lease(run.version)
        for step in range(1, 11):
            await run.learner.publish(run.at(step), adapter(here, str(step)))
            assert len(here.sampler.adapters) <= 2
        assert list(here.sampler.adapters) == [str(run.at(10))]


@pytest.mark.parametrize("pause", ["retract", "in_place", "abort"])
async def test_a_request_in_flight_goes_on_with_its_own_adapter(
    world: MakeWorld, policy: Path, pause: str
) -> None:
    """Its tokens are of its version, although the server has a newer one. Under `abort` a new
    request goes on under the new version instead."""
    here = await world(
        policy=policy, takes_adapters=True, timing=Timing(tokens_per_second=10),
        run=AHEAD, sampler={"pause": pause},
    )  # fmt: skip
    sampler = here.sampler

    async def in_flight(name: str) -> None:
        users = sampler._adapters._users
        await until(lambda: users[name] > 0, f"a request by the adapter {name!r}")
        before = sampler.scheduler.sampled
        await until(lambda: sampler.scheduler.sampled > before + 10, "some tokens")

    async with here.engine() as run:
        for step in (1, 2, 3):
            before = str(run.at(step - 1)) if step > 1 else ""
            await in_flight(before)
            await run.learner.publish(run.at(step), adapter(here, str(step)))
            assert str(run.at(step)) in sampler.adapters
            named_now = {name for name, count in sampler._adapters._users.items() if count}
            assert named_now - {""} <= sampler.adapters.keys()
            assert pause == "abort" or before in named_now, "the publish waited for its requests"
        groups = await run.learner.lease(run.at(3), count=3)
        assert len(groups) == 3
        sent = defaultdict(list)
        for request in sampler.requests:
            sent[request.body["routing_key"]].append(request.body.get("lora_path"))
        asked = {tuple(dict.fromkeys(names)) for names in sent.values()}
        several = 0
        for group in groups:
            by_turn: dict[int, list[str | None]] = defaultdict(list)
            for segment in group.members[0].sequences[-1].segments:
                if segment.weight_version is not None:
                    at = segment.weight_version
                    by_turn[segment.turn].append(str(at) if at.step else None)
            several += sum(len(versions) > 1 for versions in by_turn.values())
            assert tuple(dict.fromkeys(v for vs in by_turn.values() for v in vs)) in asked
        assert bool(several) == (pause == "abort")


async def test_a_sampler_that_comes_back_has_the_newest_adapter_first(
    world: MakeWorld, policy: Path
) -> None:
    """The frozen policy and that adapter; requests that were refused before go on there."""
    here = await world(
        policy=policy, takes_adapters=True, timing=Timing(tokens_per_second=25), run=AHEAD
    )
    script, port = here.sampler._script, urlsplit(here.sampler.url).port or 0
    async with AsyncExitStack() as stack, here.engine() as run:
        folders = {step: adapter(here, str(step)) for step in (1, 2)}
        for step, folder in folders.items():
            await run.learner.publish(run.at(step), folder)
        name = str(run.at(2))
        await until(lambda: named(here.sampler)[-1:] == [name], "a request by the adapter")
        await here.sampler.__aexit__()
        back = await stack.enter_async_context(
            ScriptedSampler(script=script, port=port, takes_adapters=True)
        )
        await until(lambda: name in named(back), "a request by the adapter")
        assert back.adapters == {name: str(folders[2])}
        assert back.scheduler.weight_version == name
        groups = await run.learner.lease(run.at(2), count=9)
        assert {g.members[0].weight_versions[-1] for g in groups} >= {run.at(2)}
        assert all(not g.members[0].masked for g in groups)


async def test_a_refusal_of_a_restarted_sampler_ends_no_trajectory(
    world: MakeWorld, policy: Path
) -> None:
    """It restarts between two turns, so its refusal of the adapter is the first sign of it."""
    go = asyncio.Event()
    here = await world(policy=policy, takes_adapters=True, tools=held(go), run=ADAPTERS)
    script, port = here.sampler._script, urlsplit(here.sampler.url).port or 0
    async with AsyncExitStack() as stack, here.engine() as run:
        await here.tools.called.wait()
        version, folder = run.at(1), adapter(here, "1")
        await run.learner.publish(version, folder)
        await here.sampler.__aexit__()
        back = await stack.enter_async_context(
            ScriptedSampler(script=script, port=port, takes_adapters=True)
        )
        go.set()
        await until(lambda: bool(back.requests), "a request")
        assert named(back)[0] == str(version)
        assert run.engine._pool.servers[0].adapter == str(version)
        await until(lambda: bool(back.adapters), "the adapter", 30)
        before = len(named(back))
        assert back.adapters == {str(version): str(folder)}
        await until(lambda: len(named(back)) > before, "the request again", 30)
        assert set(named(back)) == {str(version)}
        assert run.engine._pool.servers[0].faults[Fault.REFUSED] == 0


async def test_an_engine_that_starts_takes_up_the_newest_adapter(
    world: MakeWorld, policy: Path
) -> None:
    """An adapter that an earlier life left is unloaded; those of others stay."""
    async with engine(world, policy) as (here, run):
        version, folder = run.at(2), adapter(here, "2")
        await run.learner.publish(run.at(1), adapter(here, "1"))
        await run.learner.publish(version, folder)
    for name in ("gone.7", "a user's"):
        assert (await here.sampler._adapters.load(name, str(folder)))[0]
    async with here.engine() as run:
        assert run.version == version
        assert here.sampler.adapters == {"a user's": str(folder), str(version): str(folder)}
        await run.learner.publish(run.at(3), adapter(here, "3"))


async def test_what_is_not_an_adapter_of_the_policy_is_refused(
    world: MakeWorld, policy: Path
) -> None:
    async with engine(world, policy) as (here, run):
        await refused(run.learner.publish(run.at(1), here.weights("1")), INVALID, "adapter_config")
        other = adapter(here, "other")
        a = np.zeros((4, 5), np.float32)
        tensors = {f"base_model.model.{STEM}.lora_{half}.weight": a for half in "AB"}
        save_file(tensors, other / "adapter_model.safetensors")
        await refused(run.learner.publish(run.at(1), other), INVALID, r"shape \[4, 5\].*\[4, 4\]")
        assert here.sampler.adapters == {}
        await run.learner.publish(run.at(1), adapter(here, "1"))


async def test_a_sampler_without_adapters_is_refused_at_the_start(
    world: MakeWorld, policy: Path
) -> None:
    here = await world(policy=policy, run=ADAPTERS)
    with pytest.raises(StartupError, match="start it with --enable-lora"):
        async with here.engine():
            pass


async def test_weights_that_are_merged_cannot_follow_adapters(
    world: MakeWorld, policy: Path
) -> None:
    """The journal keeps what the run publishes."""
    async with engine(world, policy) as (here, run):
        await run.learner.publish(run.at(1), adapter(here, "1"))
    with pytest.raises(StartupError, match="published weights is 'adapters'"):
        async with here.engine(run={"publish_adapters": False}):
            pass
