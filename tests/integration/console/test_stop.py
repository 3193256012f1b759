"""`toolwright stop` and `status` of a run that somebody started by hand: its engine is asked."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from bench.scripted import ScriptedSampler, replies
from console.course.stopping import state, stop
from tests.support.engines import running
from tests.support.net import free_port
from tests.support.own_run import write_own_run

pytestmark = pytest.mark.quick


async def test_an_engine_that_runs_alone_is_drained_and_serves_on(
    tmp_path: Path, policy_folder: Path
) -> None:
    async with ScriptedSampler(script=replies([[5, 6, 2]])) as sampler:
        recipe = write_own_run(
            tmp_path,
            policy_folder,
            run={"engine": f"127.0.0.1:{free_port()}"},
            sampler={"endpoints": [sampler.url]},
            engine={"evaluation": None},
        )
        async with running(recipe) as alone:
            run = tmp_path / "run"
            # A run that is over, and whose recipe has the same address.
            other = tmp_path / "other"
            shutil.copytree(run, other)
            assert (await asyncio.to_thread(state, other)).word == "unknown"
            quiet = await asyncio.to_thread(stop, other, print, now=False)
            assert quiet == f"{other} does not run"
            assert (await alone.learner.status()).state != "draining"
            assert (await asyncio.to_thread(state, run)).word == "running"
            said: list[str] = []
            done = await asyncio.to_thread(stop, run, said.append, now=False)
            assert "is drained" in done
            assert len(said) == 1
            assert (await alone.learner.status()).state == "draining"
    assert await asyncio.to_thread(stop, run, said.append, now=False) == f"{run} does not run"
    assert (await asyncio.to_thread(state, run)).word == "unknown"
