"""An engine that answers at run.engine is this run's, or is refused before anything starts."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from console.asked.setup import Options, Setup, set_up
from console.course.look import look
from console.errors import NothingStarted
from tests.support.recipes import ONE, to_toml
from toolwright.model.fingerprint import Fingerprint, canonical_terms, fingerprint
from toolwright.policy.v1 import policy_pb2 as policy
from toolwright.policy.v1 import policy_pb2_grpc
from toolwright.rpc.server import Server


class _Policy(policy_pb2_grpc.PolicyServiceServicer):
    def __init__(self, told: Fingerprint, *, away: bool) -> None:
        self._told = told
        self._away = away

    async def GetPolicy(
        self, request: policy.GetPolicyRequest, context: Any
    ) -> policy.GetPolicyResponse:
        assert request.learner == ""  # who asks takes the run from nobody
        if self._away:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "its samplers start")
        told = self._told
        return policy.GetPolicyResponse(
            fingerprint=policy.Fingerprint(recipe=canonical_terms(told.terms), folder=told.folder)
        )


@asynccontextmanager
async def _engine(told: Fingerprint | None, *, away: bool = False) -> AsyncIterator[str]:
    """Its address. None: a healthy server of something else."""
    server = Server("127.0.0.1:0")
    if told is not None:
        name = policy.DESCRIPTOR.services_by_name["PolicyService"].full_name
        servicer = _Policy(told, away=away)
        server.add(
            name, lambda to: policy_pb2_grpc.add_PolicyServiceServicer_to_server(servicer, to)
        )
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0)


def _setup(folder: Path, engine: str = "127.0.0.1:1", sampler: str = "127.0.0.1:1") -> Setup:
    file = folder / "recipe.toml"
    tables = {
        "run": {**ONE, "name": "own", "folder": "run", "engine": engine},
        "policy": {"model": "base"},
        "task": {"source": "task.py:questions", "reward": "./task.py:score"},
        "sampler": {"endpoints": [f"http://{sampler}"]},
        "console": {"services": [{"name": "sampler", "run": ["x"], "ready": "http://127.0.0.1:1"}]},
    }
    file.write_text(to_toml(tables), encoding="utf-8")
    return set_up(Options(recipe=file))


def _own(folder: Path) -> Fingerprint:
    return fingerprint(_setup(folder).recipe, tokenizer="t", shape="s", lineages=("first",))


async def _looked(folder: Path, engine: str) -> bool:
    """Whether the engine has to be started."""
    setup = _setup(folder, engine)
    return (await look(setup, setup.table.services)).engine


async def test_this_runs_engine_is_used_as_it_is(tmp_path: Path) -> None:
    async with _engine(_own(tmp_path)) as address:
        assert not await _looked(tmp_path, address)


async def test_the_engine_of_another_run_is_refused_with_that_run(tmp_path: Path) -> None:
    other = replace(_own(tmp_path), folder="/home/me/other run")
    async with _engine(other) as address:
        sentence = f"{address} is the engine of another run, /home/me/other run: name another port"
        with pytest.raises(NothingStarted, match=re.escape(sentence)) as refused:
            await _looked(tmp_path, address)
    assert "`toolwright stop '/home/me/other run'`" in str(refused.value)
    assert refused.value.status == 2


async def test_an_engine_that_was_started_otherwise_is_refused_with_the_key(tmp_path: Path) -> None:
    own = _own(tmp_path)
    other = replace(own, terms={**own.terms, "run.group_size": 7})
    async with _engine(other) as address:
        with pytest.raises(NothingStarted, match=r"run\.group_size is 7 in the engine and 1 here"):
            await _looked(tmp_path, address)


async def test_a_healthy_server_that_is_no_engine_is_refused(tmp_path: Path) -> None:
    async with _engine(None) as address:
        with pytest.raises(NothingStarted, match="what serves there is no engine: name another"):
            await _looked(tmp_path, address)


async def test_an_engine_that_cannot_tell_yet_is_left_to_the_learner(tmp_path: Path) -> None:
    async with _engine(_own(tmp_path), away=True) as address:
        assert not await _looked(tmp_path, address)


async def test_a_stranger_at_a_samplers_address_is_refused_with_its_process(tmp_path: Path) -> None:
    async with _engine(None) as address:
        setup = _setup(tmp_path, sampler=address)
        with pytest.raises(NothingStarted, match=rf"{address} \(process {os.getpid()} ") as refused:
            await look(setup, setup.table.services)
    assert str(refused.value).endswith("name another port (0 is any free one)")
    assert refused.value.status == 2
