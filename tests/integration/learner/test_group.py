"""Weights by a process group: every version arrives as its folder has it, whatever breaks between.

The samplers' ranks are real gloo ranks in threads of this process, the learner is in it too.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from console.machine.ready import free_ports
from learner import run as loop
from learner.errors import EngineError, GroupError, TakenError
from learner.saving import broadcast, group
from tests.integration.learner.group_engine import GroupEngine, failed
from tests.integration.learner.test_run import metrics, recipe_for, steps_of
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import Recipe
from toolwright.rpc.errors import ServiceError, not_served

pytestmark = pytest.mark.quick


@pytest.fixture
def engine() -> Iterator[GroupEngine]:
    server = GroupEngine()
    yield server
    server.stop()


def by_group(folder: Path, model: Path, engine: GroupEngine, **changes: Any) -> Recipe:
    given = {"run.steps": 3, "learner.publish.way": '"group"', "learner.publish.bucket_mib": 1}
    return recipe_for(folder, model, engine, **{**given, **changes})


def check_received(engine: GroupEngine, policies: Path) -> None:
    """Each server got each version's folder, to the bit; folders that are gone are passed over."""
    compared = 0
    for version, servers in engine.received.items():
        folder = policies / f"{version.lineage}-{version.step}"
        if not folder.is_dir():
            continue
        expected = load_file(folder / "model.safetensors")
        for got in servers:
            assert got.keys() == expected.keys()
            assert all(torch.equal(got[name], expected[name]) for name in expected)
            compared += 1
    assert compared


def test_a_run_by_the_group(
    tmp_path: Path,
    model_folder: Path,
    engine: GroupEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In several buckets; the folder of each version follows, and is the newest at the end."""
    monkeypatch.setattr(broadcast, "MIB", 8 << 10)
    open_files: list[int] = []

    def count(rpc: str, _step: int) -> None:
        if rpc == "begin":
            open_files.append(len(os.listdir("/proc/self/fd")))

    engine.fault = count
    (port,) = free_ports(1)  # the same for each group: the one before must have let it go
    changes = {"run.steps": 4, "learner.publish.port": port}
    final = loop.run(by_group(tmp_path, model_folder, engine, **changes))
    assert {request.master_port for request in engine.begun} == {port}
    assert steps_of(engine) == [0, 1, 2, 3, 4]
    assert [version.step for version in engine.received] == [1, 2, 3, 4]
    assert engine.folder.name == f"{engine.version.lineage}-4"  # type: ignore[union-attr]
    check_received(engine, tmp_path / "run" / "policy")
    assert len(list((tmp_path / "run" / "policy").iterdir())) == 3
    sent, last = load_file(final / "model.safetensors"), list(engine.received.values())[-1][0]
    assert all(torch.equal(sent[name], last[name]) for name in sent)
    assert len(engine.buckets) > 4 * 3
    largest = max(tensor.nbytes for tensor in sent.values())
    assert max(engine.buckets) <= max(8 << 10, largest)
    for line in metrics(tmp_path):
        assert (line["group_tries"], line["paused_s"]) == (1, 0.25)
        assert line["broadcast_bytes"] == sum(tensor.nbytes for tensor in sent.values())
        assert 0 < line["broadcast_s"] <= line["publish_s"]
    assert metrics(tmp_path)[-1]["folder_s"] > 0
    assert open_files[-1] <= open_files[0] + 2, open_files  # of three groups nothing is left


def once(rpc: str, index: int, what: Callable[[], None]) -> Callable[[str, int], None]:
    """A fault that happens the first time that a bucket's RPC, or another one, is asked."""
    left = [what]

    def fault(asked: str, at: int) -> None:
        if left and (asked, at) == (rpc, index):
            left.pop()()

    return fault


def refuse(error: ServiceError) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def test_a_server_that_dies_between_buckets_costs_a_try(
    tmp_path: Path,
    model_folder: Path,
    engine: GroupEngine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(broadcast, "MIB", 8 << 10)

    def die() -> None:
        assert engine.open is not None
        engine.open.servers[1].close()
        engine.servers = 1

    engine.fault = once("bucket", 1, die)
    loop.run(by_group(tmp_path, model_folder, engine))
    assert [line["group_tries"] for line in metrics(tmp_path)] == [2, 1, 1]
    assert [len(servers) for servers in engine.received.values()] == [1, 1, 1]
    assert steps_of(engine) == [0, 1, 2, 3]
    check_received(engine, tmp_path / "run" / "policy")
    assert "did not reach" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("address", "reason"),
    [("127.0.0.1", "NOT_SERVED"), ("192.0.2.1", r"learner\.publish\.address = 192\.0\.2\.1")],
)
def test_where_there_can_be_no_group_folders_go(
    tmp_path: Path,
    model_folder: Path,
    engine: GroupEngine,
    capsys: pytest.CaptureFixture[str],
    address: str,
    reason: str,
) -> None:
    """An engine that knows none, an address that is not this machine's: said once a publish."""

    def refuse_all(rpc: str, _step: int) -> None:
        if rpc == "begin":
            raise not_served("BeginPublish")

    engine.fault = refuse_all
    changes = {"learner.publish.address": f'"{address}"'}
    loop.run(by_group(tmp_path, model_folder, engine, **changes))
    assert steps_of(engine) == [0, 1, 2, 3]
    assert not engine.received
    assert [line["group_tries"] for line in metrics(tmp_path)] == [3, 1, 1]
    lineage = engine.version.lineage  # type: ignore[union-attr]
    assert engine.folder.name == f"{lineage}-3"
    out = capsys.readouterr().out
    said = re.findall(rf"(\S+) did not reach the samplers by the group .*{reason}.*folder", out)
    assert said == [f"{lineage}.{step}" for step in (1, 2, 3)]


def test_a_server_that_takes_nothing_holds_nobody_up(
    tmp_path: Path, model_folder: Path, engine: GroupEngine
) -> None:
    """The RPC of a bucket does not end: the try ends by its own time, the engine hears of it."""
    gone = threading.Event()
    engine.fault = once("bucket", 0, lambda: gone.wait(20) and None)
    began = time.monotonic()
    changes = {"run.steps": 1, "learner.publish.timeout_s": 1.0}
    loop.run(by_group(tmp_path, model_folder, engine, **changes))
    gone.set()
    assert time.monotonic() - began < 15
    assert [line["group_tries"] for line in metrics(tmp_path)] == [2]
    assert engine.aborted == ["publish-1"]
    check_received(engine, tmp_path / "run" / "policy")


def test_a_worker_that_comes_late_is_freed_and_does_not_look_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group, "LINGER_S", 3.0)
    at = group.WeightGroup("127.0.0.1", 0, timeout=30.0)
    joining = at.join("late", 2)
    at.close()
    patience = timedelta(seconds=20)
    late = TCPStore("127.0.0.1", at.port, is_master=False, timeout=patience, wait_for_workers=False)
    with pytest.raises(RuntimeError):  # long before its patience ends
        late.get("what rank 0 would say")
    with pytest.raises(GroupError, match="not all of the samplers' 1 workers joined"):
        joining.result(timeout=30.0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", at.port))


def test_a_group_that_does_not_form_names_the_learners_nccl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group, "backend", lambda: "nccl")
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 5))
    at = group.WeightGroup("127.0.0.1", 0, timeout=1.0)
    with pytest.raises(GroupError, match=r"NCCL 2\.27\.5, and the samplers need the same version"):
        at.join("other", 2).result(timeout=30.0)
    at.close()


def test_a_run_that_is_taken_ends(tmp_path: Path, model_folder: Path, engine: GroupEngine) -> None:
    taken = ServiceError(reasons.ERROR_REASON_SUPERSEDED, "the run is another learner's")
    engine.fault = once("bucket", 0, refuse(taken))
    with pytest.raises(TakenError, match="another learner's"):
        loop.run(by_group(tmp_path, model_folder, engine))
    assert steps_of(engine) == [0]


def test_a_folder_that_the_engine_refuses_ends_the_run(
    tmp_path: Path, model_folder: Path, engine: GroupEngine
) -> None:
    """With the sentence of a publish by folder; the next version is not begun."""

    def refuse_step_two(rpc: str, step: int) -> None:
        if (rpc, step) == ("folder", 2):
            raise ServiceError(reasons.ERROR_REASON_INVALID_REQUEST, "the folder is not whole")

    engine.fault = refuse_step_two
    with pytest.raises(EngineError, match=r"refused PublishWeights \w+\.2: .*not whole"):
        loop.run(by_group(tmp_path, model_folder, engine))
    assert [version.step for version in engine.received] == [1, 2]


def test_an_answer_that_is_lost_is_asked_for_again_or_tried_again(
    tmp_path: Path, model_folder: Path, engine: GroupEngine
) -> None:
    """A commit that came to nothing: the engine goes on without the version, the learner brings it
    again."""
    engine.fault = once("commit", 1, refuse(failed("a server did not end its update")))
    loop.run(by_group(tmp_path, model_folder, engine, **{"run.steps": 1}))
    assert [line["group_tries"] for line in metrics(tmp_path)] == [2]
    assert steps_of(engine) == [0, 1]
    check_received(engine, tmp_path / "run" / "policy")


def test_samplers_elsewhere_cannot_meet_a_learner_at_loopback(
    tmp_path: Path, model_folder: Path, engine: GroupEngine
) -> None:
    endpoints = {"sampler.endpoints": '["http://10.0.0.7:30000"]'}
    with pytest.raises(GroupError, match=r"10\.0\.0\.7.*learner\.publish\.address"):
        loop.run(by_group(tmp_path, model_folder, engine, **endpoints))
