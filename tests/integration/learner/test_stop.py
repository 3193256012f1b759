"""A learner that is told to stop: the step in hand, a checkpoint, and the same command goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from learner import run as loop
from learner.errors import StoppedError
from learner.imitation import loop as imitating
from learner.loop import step as stepping
from learner.saving.checkpoint import Checkpoints
from learner.saving.folder_writer import FolderWriter
from learner.sft import sft
from learner.stop import Stop
from tests.integration.learner.fake_engine import FakeEngine
from tests.integration.learner.forked import run_ranks
from tests.integration.learner.test_run import ledger, metrics, recipe_for, steps_of
from tests.integration.learner.test_sft import losses, traces, write_recipe
from tests.support.waiting import blocks

pytestmark = pytest.mark.slow

__all__ = ["traces"]  # a fixture

RARELY = {"learner.checkpoint_every": 99}


def stopped(work: Callable[[Stop], object]) -> StoppedError:
    """What the work ended with, that had this process's signals."""
    stop = Stop()
    told: list[object] = []
    with stop.listening(lambda *said: told.append(said)), pytest.raises(StoppedError) as error:
        work(stop)
    assert told == []
    return error.value


def signals(number: signal.Signals, real: Callable[..., Any], at: int) -> Callable[..., Any]:
    """The function, at whose call of this number the process gets a signal."""
    calls = 0

    def called(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), number)
        return real(*arguments, **named)

    return called


def test_a_wait_ends_at_once_and_a_step_is_finished_then_the_same_command_goes_on(
    tmp_path: Path, model_folder: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_for(tmp_path, model_folder, engine, **RARELY)

    # One of the three groups of step 3 is there; the others do not come.
    engine.last = 7
    asked = signals(signal.SIGTERM, stepping.why_none_will_come, 3)
    monkeypatch.setattr(stepping, "why_none_will_come", asked)
    waiting = stopped(lambda stop: loop.run(recipe, stop))
    assert (waiting.status, str(waiting)) == (143, "stopped; the same command goes on from step 2")
    assert (steps_of(engine), engine.durable) == ([0, 1, 2], 6)
    assert [entry["sequence_number"] for entry in ledger(tmp_path)] == list(range(1, 7))

    engine.last = None
    with monkeypatch.context() as patch:
        patch.setattr(stepping, "improve", signals(signal.SIGINT, stepping.improve, 1))
        training = stopped(lambda stop: loop.run(recipe, stop))
    assert (training.status, str(training)) == (
        130,
        "stopped; the same command goes on from step 3",
    )
    assert (steps_of(engine), engine.durable) == ([0, 1, 2, 3], 9)

    final = loop.run(recipe)
    assert final.is_dir()
    assert [line["step"] for line in metrics(tmp_path)] == [1, 2, 3, 4]
    assert [entry["sequence_number"] for entry in ledger(tmp_path)] == list(range(1, 13))
    assert len({version.lineage for version, _ in engine.published}) == 1


def test_an_engine_that_is_gone_holds_nobody_up(
    tmp_path: Path, model_folder: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is written before the engine is told of it."""
    recipe = recipe_for(tmp_path, model_folder, engine, **RARELY)

    report = stepping.report_step

    def report_and_go(*arguments: Any) -> dict[str, float]:
        figures = report(*arguments)
        engine.stop()
        os.kill(os.getpid(), signal.SIGTERM)
        return figures

    monkeypatch.setattr(stepping, "report_step", report_and_go)
    monkeypatch.setattr("learner.intake.client.STOPPING_S", 0.2)
    error = stopped(lambda stop: loop.run(recipe, stop))
    assert error.status == 143
    assert str(error).startswith(f"stopped (engine at {engine.address} did not answer AckGroups")
    assert str(error).endswith("the same command goes on from step 1")
    assert len(ledger(tmp_path)) == 3  # which is read from the checkpoint


def test_without_its_engine_rank_0_waits_for_the_disk_alone(
    tmp_path: Path, model_folder: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other ranks wait in another collective for what the engine said."""
    changes = {"learner.checkpoint_every": 1, "learner.background_checkpoints": "true"}
    recipe = recipe_for(tmp_path, model_folder, engine, **changes)
    real, trained = stepping.improve, 0

    def improve_and_go(*arguments: Any, **named: Any) -> Any:
        nonlocal trained
        trained += 1
        if trained == 2:
            engine.stop()
            os.kill(os.getpid(), signal.SIGTERM)
            monkeypatch.setattr(Checkpoints, "settle", lambda _self: pytest.fail("a collective"))
        return real(*arguments, **named)

    monkeypatch.setattr(stepping, "improve", improve_and_go)
    monkeypatch.setattr("learner.intake.client.STOPPING_S", 0.2)
    error = stopped(lambda stop: loop.run(recipe, stop))
    assert "did not answer" in str(error)
    assert str(error).endswith("the same command goes on from step 1")


def test_imitation_stops_after_its_step_too(
    tmp_path: Path, model_folder: Path, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write_recipe(tmp_path, model_folder)
    with monkeypatch.context() as patch:
        real = imitating.finite_gradients
        patch.setattr(imitating, "finite_gradients", signals(signal.SIGTERM, real, 3))
        error = stopped(lambda stop: sft(recipe, stop))
    assert (error.status, str(error)) == (143, "stopped; the same command goes on from step 3")
    sft(recipe)
    assert len(losses(tmp_path)) == 8


def test_all_ranks_stop_at_the_step_at_which_one_was_told(
    tmp_path: Path, model_folder: Path
) -> None:
    run_ranks("stop_main", model_folder, tmp_path)
    first, second = ((tmp_path / f"rank-{rank}").read_text(encoding="utf-8") for rank in (0, 1))
    assert first == second == "143 stopped; the same command goes on from step 2"


def test_a_folder_behind_is_whole_before_the_run_lets_go_of_its_lock() -> None:
    done: list[str] = []

    def write() -> None:
        blocks(0.3, "a folder takes its time")
        done.append("written")

    with pytest.raises(KeyboardInterrupt), FolderWriter() as behind:
        behind.begin(write, lambda: done.append("told"))
        raise KeyboardInterrupt
    assert done == ["written", "told"]
