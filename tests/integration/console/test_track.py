"""`toolwright track`: real run files into the real TensorBoard, W&B and MLflow libraries."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from wandb.proto import wandb_internal_pb2

from console.record.course import Began, CourseLog
from console.track.beside import tracking
from console.track.following import Following
from console.track.tracker import Destination
from tests.support.waiting import until

pytestmark = pytest.mark.quick

STEPS = 4
TOKEN = "a-token-that-nobody-may-see"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder of STEPS steps, whose recipe wants them and one suite."""
    folder = tmp_path / "run"
    (folder / "final").mkdir(parents=True)
    (folder / "sft").mkdir()
    shared = {"run": {"name": "oslo", "steps": STEPS}, "tools": {"geo": {"api_key": TOKEN}}}
    engine = {"evaluation": {"suites": [{"name": "heldout"}]}}
    _write(folder / "engine.resolved.json", [{"shared": shared, "engine": engine}])
    _write(folder / "learner.resolved.json", [{"shared": shared, "learner": {"updates": 1}}])
    _write(folder / "learner.jsonl", [_step(n, n / 10) for n in range(1, STEPS + 1)])
    _write(folder / "sft/sft.jsonl", [{"step": 1, "loss": 2.0}])
    _write(folder / "evaluations.jsonl", [_evaluation(n, n / 10) for n in (0, STEPS)])
    return folder


def test_a_finished_run_is_brought_to_all_three_and_the_command_ends(run: Path) -> None:
    done = _track(run, "tensorboard,wandb,mlflow")
    assert (done.returncode, done.stderr) == (0, "")

    board = _board(run)
    assert board["learner", "reward"] == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]
    assert board["learner", "reward/correct"][-1] == (4, 0.4)
    assert board["sft", "loss"] == [(1, 2.0)]
    assert board["evaluations", "evaluation/heldout/reward"] == [(0, 0.0), (4, 0.4)]
    assert board["evaluations", "evaluation/heldout/stderr"] == [(0, 0.01), (4, 0.01)]
    assert board["evaluations", "evaluation/heldout/calls"] == [(0, 1.5), (4, 1.5)]

    history = _history(run)
    assert [r["reward"] for r in history if "reward" in r] == [0.1, 0.2, 0.3, 0.4]
    assert [
        (r["step"], r["evaluation/heldout/reward"]) for r in history if "evaluation/heldout/n" in r
    ] == [(0, 0.0), (4, 0.4)]

    client, ours = _mlflow(run)
    values = client.get_metric_history(ours.info.run_id, "reward.correct")
    assert [(m.step, m.value) for m in values] == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]
    assert ours.data.metrics["evaluation.heldout.reward"] == 0.4
    assert (ours.info.run_name, ours.info.status) == ("oslo", "FINISHED")
    assert ours.data.params["learner.updates"] == "1"
    assert ours.data.tags["verdict"] == "rose"

    kept = [p for p in run.rglob("*") if p.is_file() and not p.name.endswith(".resolved.json")]
    assert not [p for p in kept if TOKEN.encode() in p.read_bytes()]


def test_a_second_start_adds_what_is_new_and_a_step_trained_again_replaces_the_old(
    run: Path,
) -> None:
    _look(run, "tensorboard", "mlflow")
    again = [_step(3, 0.7), _step(4, 0.8)]
    _write(run / "learner.jsonl", again)
    _write(run / "evaluations.jsonl", [_evaluation(STEPS, 0.9)])
    _look(run, "tensorboard", "mlflow")
    board = _board(run)
    assert board["learner", "reward"] == [(1, 0.1), (2, 0.2), (3, 0.7), (4, 0.8)]
    assert board["evaluations", "evaluation/heldout/reward"] == [(0, 0.0), (4, 0.9)]
    client, ours = _mlflow(run)
    values = client.get_metric_history(ours.info.run_id, "reward")
    assert [(m.step, m.value) for m in values] == [
        *((1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)),
        *((3, 0.7), (4, 0.8)),
    ]
    _look(run, "tensorboard", "mlflow")
    assert _board(run)["learner", "reward"] == board["learner", "reward"]
    assert len(client.get_metric_history(ours.info.run_id, "reward")) == len(values)


def test_what_was_written_and_not_yet_kept_is_not_drawn_twice(run: Path) -> None:
    _look(run, "tensorboard")
    kept = run / "console/track/tensorboard.json"
    told = json.loads(kept.read_text(encoding="utf-8"))
    first = (run / "learner.jsonl").read_bytes().index(b"\n") + 1
    kept.write_text(
        json.dumps({**told, "places": {**told["places"], "learner": first}}), encoding="utf-8"
    )
    _look(run, "tensorboard")
    assert _board(run)["learner", "reward"] == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]
    kept.write_text("{torn", encoding="utf-8")
    _look(run, "tensorboard")
    assert _board(run)["learner", "reward"] == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]


async def test_beside_a_run_it_follows_until_the_block_ends(run: Path) -> None:
    """The course of `toolwright run` goes on, so the folder's looks do not end it."""
    with CourseLog(run) as course:
        course.began(_began())
        said: list[str] = []
        log = run / "console/logs/track.log"
        async with tracking(run, ["tensorboard"], log=log, say=said.append):
            await until(lambda: _steps(run) == 4, "the first steps")
            _write(run / "learner.jsonl", [_step(5, 0.5)])
            await until(lambda: _steps(run) == 5, "the new step")
            # Written as late as can be: the last look brings it.
            _write(run / "learner.jsonl", [_step(6, 0.6)])
        assert _steps(run) == 6
        assert said == []


async def test_a_tracker_that_is_away_is_said_once_and_the_others_go_on(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = HTTPServer(("127.0.0.1", 0), _Refuses)
    threading.Thread(target=refusing.serve_forever, daemon=True).start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{refusing.server_port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    said: list[str] = []
    with CourseLog(run) as course:
        course.began(_began())
        log = run / "console/logs/track.log"
        async with tracking(run, ["mlflow", "tensorboard"], log=log, say=said.append):
            await until(lambda: _steps(run) == 4 and bool(said), "a word of the tracker")
    refusing.shutdown()
    assert len(said) == 1
    assert said[0].startswith("track: mlflow: MlflowException: ")
    assert "The run goes on" in said[0]
    assert said[0] in log.read_text(encoding="utf-8")


def test_a_second_tracker_of_the_same_run_is_refused(run: Path) -> None:
    with CourseLog(run) as course:
        course.began(_began())
        first = _start(run, "tensorboard")
        try:
            asyncio.run(until(lambda: _steps(run) == 4, "the first tracker"))
            second = _track(run, "tensorboard")
            assert second.returncode == 1
            assert second.stderr == (
                f"track: tensorboard: another `toolwright track` follows {run}: this one leaves "
                "it alone\n"
            )
        finally:
            first.send_signal(signal.SIGTERM)
        assert first.wait(20) == 0


class _Refuses(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(418, "no curves here")

    do_POST = do_GET

    def log_message(self, *_words: Any) -> None:
        """Nothing on standard error."""


def _track(run: Path, to: str) -> subprocess.CompletedProcess[str]:
    return _command(run, "--to", to)


def _look(run: Path, *to: Destination) -> None:
    """One life of each tracker in this process, with one look."""
    for name in to:
        said: list[str] = []
        following = Following(run, name, said.append)
        following.start()
        following.end()
        assert following.wait(30)
        assert (following.failed, said) == (False, [])


def _command(run: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "console.cli", "track", str(run), *words]
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=60, env=_environment()
    )


def _start(run: Path, to: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "console.cli", "track", str(run), "--to", to]
    return subprocess.Popen(argv, env=_environment())


def _environment() -> dict[str, str]:
    return {**os.environ, "WANDB_MODE": "offline", "TERM": "dumb"}


def _board(run: Path) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """What TensorBoard shows: folder and tag to its points."""
    board = EventMultiplexer().AddRunsFromDirectory(str(run / "tensorboard"))
    board.Reload()
    return {
        (name, tag): [(p.step, round(p.value, 6)) for p in board.Scalars(name, tag)]
        for name, tags in board.Runs().items()
        for tag in tags["scalars"]
    }


def _steps(run: Path) -> int:
    if not (run / "tensorboard/learner").exists():
        return 0
    return len(_board(run).get(("learner", "reward"), ()))


def _history(run: Path) -> list[dict[str, Any]]:
    """The rows that W&B's own file holds."""
    (file,) = (run / "wandb").glob("offline-run-*/run-*.wandb")
    rows = []
    for data in _records(file.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            names = ["/".join(item.nested_key) or item.key for item in items]
            rows.append(dict(zip(names, [json.loads(i.value_json) for i in items], strict=True)))
    return rows


def _records(data: bytes) -> Iterator[bytes]:
    """Of LevelDB's log format: blocks of 32 KiB, a head of 7 bytes before each part of a record."""
    whole = b""
    at = len(":W&B") + 3
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def _mlflow(run: Path) -> tuple[MlflowClient, Any]:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    client = MlflowClient(tracking_uri=(run / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("toolwright")
    (ours,) = client.search_runs([experiment.experiment_id])
    return client, ours


def _step(step: int, reward: float) -> dict[str, Any]:
    return {"step": step, "version": f"a-{step}", "reward": reward, "reward/correct": reward}


def _evaluation(step: int, reward: float) -> dict[str, Any]:
    return {
        "suite": "heldout",
        "step": step,
        "n": 8,
        "reward": reward,
        "stderr": 0.01,
        "calls": 1.5,
    }


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def _began() -> Began:
    return Began(at=0.0, pid=1, created=0.0, argv=[], recipe="r.toml", overrides=[])
