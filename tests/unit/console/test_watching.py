"""A run is followed from its files and its engine, and the view ends with it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf import json_format, struct_pb2
from rich.console import Console
from typer.testing import CliRunner

from console.cli import app
from console.course.notes import Notes
from console.machine.pids import pid_space
from console.machine.processes import created
from console.record.course import Began, CourseLog
from console.record.resolved import Resolved
from console.watch import follow, watching
from console.watch.engine import EngineSays
from console.watch.follow import Follower
from console.watch.screen import Screen
from console.watch.status import Status, fields
from console.watch.watching import watch
from tests.support import run_folders
from tests.support.net import free_port
from tests.support.run_folders import evaluation, lines, step
from toolwright.rollout.v1 import rollout_pb2 as rollout
from toolwright.rollout.v1 import rollout_pb2_grpc


class Engine(rollout_pb2_grpc.RolloutServiceServicer):
    """Answers GetStatus with what is set."""

    def __init__(self) -> None:
        self.answer = rollout.GetStatusResponse(state="running")

    def says(self, detail: dict[str, Any], **fields: Any) -> None:
        told = json_format.ParseDict(detail, struct_pb2.Struct())
        self.answer = rollout.GetStatusResponse(detail=told, **fields)

    async def GetStatus(self, request: Any, context: Any) -> rollout.GetStatusResponse:
        return self.answer


@asynccontextmanager
async def served(address: str) -> AsyncIterator[Engine]:
    server, engine = grpc.aio.server(), Engine()
    rollout_pb2_grpc.add_RolloutServiceServicer_to_server(engine, server)
    server.add_insecure_port(address)
    await server.start()
    try:
        yield engine
    finally:
        await server.stop(0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "SELDOM_S", 0.0)
    monkeypatch.setattr(follow, "RATE_S", 60.0)
    monkeypatch.setattr(watching, "INTERVAL_S", 0.01)


async def test_a_run_is_followed_from_before_its_folder_is_there(tmp_path: Path) -> None:
    run, status = tmp_path / "run", Status()
    follower = Follower(run, status)
    await follower.look()
    assert status == Status()
    address = f"127.0.0.1:{free_port()}"
    run_folders.resolved(run, engine=address)
    lines(run / "sft/sft.jsonl", [{"step": 3, "tokens_per_s": 50.0, "step_s": 2.0}])
    await follower.look()
    assert (status.stage, status.step, status.tokens_per_second) == ("imitation", 3, 50.0)

    async with served(address) as engine:
        detail = {"tokens": 100, "calls": 4, "samplers": 1, "samplers_up": 1, "sampler_away": ""}
        engine.says(detail, state="evaluating", accepted=64, running=12)
        await follower.look()
        assert (status.stage, status.step, status.steps) == ("training", 0, 50)
        assert status.doing["learner"] == "waits for rollouts: 64 of 128"
        engine.says({**detail, "tokens": 300, "calls": 6}, state="publishing", accepted=128)
        lines(run / "learner.jsonl", [step(1), step(2, reward=0.25)])
        with (run / "learner.jsonl").open("a", encoding="utf-8") as out:
            out.write(json.dumps(step(3))[:40])
        lines(
            run / "evaluations.jsonl",
            [evaluation("curve-sampled", 0, 0.2), evaluation("heldout-greedy", 0, 0.3)],
        )
        await follower.look()
        assert (status.step, status.last.reward) == (2, 0.25)
        assert list(status.evaluations) == ["heldout-greedy", "curve-sampled"]
        assert status.tokens_per_second and status.calls_per_second
        assert status.tokens_per_second / status.calls_per_second == pytest.approx(100)
        assert status.doing["learner"] == "publishes"
        # 48 steps of 2 s, and the last evaluation, which takes as long as the first.
        assert status.left_s == pytest.approx(48 * 2 + 4, abs=2.5)

    await follower.look()  # the engine is away, the files are not
    assert status.doing["engine"] == "does not answer"
    assert status.step == 2
    (run / "checkpoints/.step-00000001.unfinished").mkdir(parents=True)
    await follower.look()
    assert status.doing["learner"] == "writes a checkpoint"


async def test_a_run_that_is_stopping_goes_on_at_no_pace(tmp_path: Path) -> None:
    run, status = tmp_path / "run", Status()
    run_folders.resolved(run, engine="")
    lines(run / "learner.jsonl", [step(1), step(2)])
    follower = Follower(run, status)
    with CourseLog(run) as log:
        log.began(Began(at=0.0, pid=1, created=0.0, argv=[], recipe="", overrides=[]))
        log.stage("learn", "reinforcement learning")
        await follower.look()
        assert status.tokens_per_second and status.left_s
        log.stage("stop", "stopping every process")
        await follower.look()
    assert status.step == 2
    assert "left" not in dict(fields(status)) and "tokens/s" not in dict(fields(status))


def quiet() -> Screen:
    return Screen(Console(file=io.StringIO()))


def test_the_command_ends_with_the_runs_status(tmp_path: Path) -> None:
    run_folders.course(run_folders.whole(tmp_path / "4"), ended=4)
    result = CliRunner().invoke(app, ["view", str(tmp_path / "4")])
    assert (result.exit_code, result.stderr) == (4, "toolwright: the learner failed\n")
    result = CliRunner().invoke(app, ["view", str(tmp_path)])
    assert result.exit_code == 1 and "is no run folder" in result.stderr


async def test_a_run_by_hand_is_over_when_its_policy_is_there_and_its_engine_done(
    tmp_path: Path, until: Any
) -> None:
    address = f"127.0.0.1:{free_port()}"
    run_folders.resolved(tmp_path, engine=address)
    lines(tmp_path / "learner.jsonl", (step(n) for n in range(1, 51)))
    async with served(address) as engine:
        view = asyncio.create_task(watch(tmp_path, screen := quiet()))
        await until(lambda: screen.status.step == 50)
        (tmp_path / "final").mkdir()
        engine.says({}, state="evaluating", final_evaluation_done=False)
        await until(lambda: screen.status.doing.get("engine", "").startswith("evaluating"))
        assert not view.done()
        engine.says({}, state="running", final_evaluation_done=True)
        assert (await view).status == 0


def killed(run: Path, pid: int, began_at: float, host: str = "") -> None:
    began = Began(
        at=1.0, pid=pid, created=began_at, argv=(), recipe="", overrides=(),
        host=host or socket.gethostname(), space=pid_space(),
    )  # fmt: skip
    with CourseLog(run) as log:
        log.began(began)
        log.stage("learn", "training")


def rests(folder: Path, ago: float = 2 * watching.QUIET_S) -> None:
    """Nothing was written lately."""
    then = time.time() - ago
    for file in folder.rglob("*"):
        os.utime(file, (then, then))


@pytest.mark.parametrize("ago", [2 * watching.QUIET_S, -3600.0])  # the clock was set back
async def test_a_start_that_was_killed_is_over_once_its_files_rest(
    tmp_path: Path, until: Any, ago: float
) -> None:
    killed(tmp_path, os.getpid(), created(os.getpid()) - 100)  # the pid is another's now
    view = asyncio.create_task(watch(tmp_path, screen := quiet()))
    await until(lambda: screen.status.stage == "training")
    assert not view.done()
    rests(tmp_path, ago)
    ended = await view
    assert ended.status == 1 and "killed" in ended.sentence


@pytest.mark.parametrize(("age", "host"), [(0, ""), (100, "another.machine")])
async def test_a_start_that_lives_goes_on_however_long_it_rests(
    tmp_path: Path, until: Any, age: float, host: str
) -> None:
    killed(tmp_path, os.getpid(), created(os.getpid()) - age, host)
    rests(tmp_path)
    view = asyncio.create_task(watch(tmp_path, screen := quiet()))
    await until(lambda: screen.status.stage == "training")
    assert not view.done()
    view.cancel()
    await asyncio.gather(view, return_exceptions=True)


async def test_another_runs_engine_at_the_same_address_is_not_this_ones(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    other.mkdir()
    address = f"127.0.0.1:{free_port()}"
    run_folders.resolved(run, engine=address)
    follower = Follower(run, Status())
    async with served(address) as engine:
        for folder, heard in ((other, False), (run, True)):
            engine.says({"run_folder": str(folder)}, state="running")
            await follower.look()
            assert (follower.says is not None) == heard


def test_an_engine_in_a_container_names_its_own_path(tmp_path: Path) -> None:
    told = Resolved(values={"run": {"folder": "runs/a"}}, recipe="/no-such-data/recipe.toml")
    says = EngineSays(state="running", run_folder="/no-such-data/runs/a")
    assert says.serves(tmp_path, told)
    assert not EngineSays(state="running", run_folder="/no-such-data/b").serves(tmp_path, told)
    # A copy of a run that is here is not that run.
    copied = Resolved(values={"run": {"folder": "."}}, recipe=str(tmp_path / "recipe.toml"))
    assert not EngineSays(state="", run_folder=str(tmp_path)).serves(tmp_path / "copy", copied)


async def test_the_first_line_of_a_stage_has_no_counter_of_the_warm_up(tmp_path: Path) -> None:
    """As `toolwright run` shows it: the screen enters a stage before the course is read again."""
    run_folders.resolved(tmp_path)
    written = io.StringIO()
    screen = Screen(Console(file=written, soft_wrap=True))
    with CourseLog(tmp_path) as log:
        notes = Notes(log, screen)
        notes.stage("sft", "warm-up")
        lines(tmp_path / "sft/sft.jsonl", [{"step": 60, "tokens_per_s": 50.0, "step_s": 2.0}])
        await (follower := Follower(tmp_path, screen.status)).look()
        assert screen.status.step == 60
        notes.stage("learn", "reinforcement learning")
        assert written.getvalue().splitlines()[-1].endswith("] reinforcement learning")
        await follower.look()  # soon after the last time
        assert (screen.status.step, screen.status.steps) == (0, 50)
        notes.stage("stop", "stopping every process")
        await follower.look()
    assert (screen.status.step, screen.status.steps) == (0, 0)


@pytest.mark.parametrize("stage", ["learn", "evaluate"])
async def test_a_new_stage_does_not_show_the_warm_ups_counter(tmp_path: Path, stage: str) -> None:
    run_folders.resolved(tmp_path)
    with CourseLog(tmp_path) as log:
        log.stage("sft", "warm-up")
        lines(tmp_path / "sft/sft.jsonl", [{"step": 40, "tokens_per_s": 50.0, "step_s": 2.0}])
        await (follower := Follower(tmp_path, status := Status())).look()
        assert (status.step, status.tokens_per_second) == (40, 50.0)
        log.stage(stage, "the next one")
        await follower.look()
    assert (status.stage, status.step, status.steps) == ("the next one", 0, 50)
    assert (status.tokens_per_second, status.left_s) == (None, None)
    lines(tmp_path / "learner.jsonl", [step(1)])
    await follower.look()
    assert status.step == 1


async def test_the_view_ends_as_the_run_did(tmp_path: Path) -> None:
    for status in (0, 1, 4):
        run = run_folders.whole(tmp_path / str(status))
        run_folders.course(run, ended=status)
        ended = await watch(run, quiet())
        assert ended.status == status


async def test_the_view_tells_the_runs_age_and_what_a_warm_up_begins_with(tmp_path: Path) -> None:
    killed(tmp_path, os.getpid(), created(os.getpid()))
    with CourseLog(tmp_path) as log:
        log.stage("sft", "warm-up")
    await (follower := Follower(tmp_path, status := Status())).look()
    learn, warm_up = follower.course.stages
    assert status.ages(warm_up.at + 3) == pytest.approx((3, 3 + warm_up.at - learn.at))
    assert status.doing["warm-up"] == "loading the model"
    lines(tmp_path / "sft/sft.jsonl", [{"step": 1, "step_s": 2.0}])
    await follower.look()
    assert "warm-up" not in status.doing
