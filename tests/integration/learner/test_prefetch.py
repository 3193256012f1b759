"""The next batch is leased while this one trains: earlier, and with no other outcome."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from learner import run as loop
from learner.errors import EngineError, WorthlessError
from learner.loop import step as stepping
from learner.loop.state import Run
from tests.integration.learner.fake_engine import FakeEngine
from tests.integration.learner.test_run import ledger, metrics, recipe_for
from tests.support.waiting import blocks
from toolwright.recipe import Recipe

pytestmark = pytest.mark.slow

ASYNC = {"run.max_staleness": 1, "run.correction": '"decoupled"'}


@pytest.fixture
def recipe(tmp_path: Path, model_folder: Path, engine: FakeEngine) -> Recipe:
    return recipe_for(tmp_path, model_folder, engine, **ASYNC)


def used(folder: Path) -> list[tuple[int, int]]:
    return [(entry["step"], entry["sequence_number"]) for entry in ledger(folder)]


EVERY_GROUP = [(step, 3 * step + number) for step in range(4) for number in (1, 2, 3)]


def heard(engine: FakeEngine, lease: tuple[int, int]) -> None:
    """Returns when the engine was asked for it."""
    deadline = time.monotonic() + 20
    while lease not in engine.leases:
        assert time.monotonic() < deadline, f"{lease} is not in {engine.leases}"
        blocks(0.005, "the lease comes from another thread")


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_the_next_batch_is_leased_while_this_one_trains(
    recipe: Recipe, tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the version that it will be trained at; none for a step after the last."""
    improve = stepping.improve

    def after_the_lease(*given: Any, **named: Any) -> Any:
        following = named["step"] + 1
        if following < 4:
            heard(engine, (following, following - 1))
        return improve(*given, **named)

    monkeypatch.setattr(stepping, "improve", after_the_lease)
    loop.run(recipe)
    # Nothing was published when step 0 was leased but the first version.
    assert engine.leases == [(0, 0), (1, 0), (2, 1), (3, 2)]
    assert used(tmp_path) == EVERY_GROUP
    assert engine.durable == 12
    assert "engine-client" not in threads()


@pytest.mark.parametrize("changes", [{}, {**ASYNC, "learner.prefetch": "false"}])
def test_nothing_is_leased_ahead_at_staleness_0_or_where_the_recipe_says_no(
    tmp_path: Path, model_folder: Path, engine: FakeEngine, changes: dict[str, Any]
) -> None:
    loop.run(recipe_for(tmp_path, model_folder, engine, **{"run.steps": 2, **changes}))
    assert engine.leases == [(0, 0), (1, 1)]


def test_death_with_a_batch_in_hand_gives_the_same_ledger(
    recipe: Recipe, tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies after the checkpoint of step 2 with the batch of step 3 leased: that is in no ledger,
    nobody acknowledged it, and the next life trains on it, once."""
    save = stepping.save

    def die_at_two(run: Run) -> None:
        save(run)
        if run.version.step == 2:
            assert run.prefetch is not None and run.prefetch._pending is not None
            assert len(run.prefetch._pending.groups.result(20)) == 3
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(stepping, "save", die_at_two)
        loop.run(recipe)
    assert engine.durable == 6
    assert used(tmp_path) == EVERY_GROUP[:6]
    assert "engine-client" not in threads()
    loop.run(recipe)
    assert used(tmp_path) == EVERY_GROUP
    assert len({version.lineage for version, _ in engine.published}) == 1


def test_what_was_refused_ahead_is_asked_for_again(
    recipe: Recipe, tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine refuses while step 1 is not published, and not afterwards: the run goes on."""
    engine.refused.add(1)
    offer = stepping.offer

    def mended(run: Run, *, moved: bool) -> None:
        heard(engine, (1, 0))
        engine.refused.clear()
        offer(run, moved=moved)

    monkeypatch.setattr(stepping, "offer", mended)
    loop.run(recipe)
    assert used(tmp_path) == EVERY_GROUP
    assert engine.leases[:3] == [(0, 0), (1, 0), (1, 1)]


def test_what_is_refused_for_good_ends_the_run_at_the_step_that_needs_it(
    recipe: Recipe, tmp_path: Path, engine: FakeEngine
) -> None:
    engine.refused.add(2)
    with pytest.raises(EngineError, match="refused on purpose"):
        loop.run(recipe)
    assert [version.step for version, _ in engine.published] == [0, 1, 2]
    assert used(tmp_path) == EVERY_GROUP[:6]


def test_an_engine_that_finds_no_group_with_a_signal_ends_the_run_with_its_sentence(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    """What is left is trained on; then a lease comes back empty, and the reason is asked for."""
    engine.last, engine.turned_away = 6, 60
    engine.fruitless = "dynamic sampling discarded 60 groups in a row"
    changes = {"task.dynamic_sampling.max_gen_batches": 0, **ASYNC}
    with pytest.raises(WorthlessError, match="samples no more: dynamic sampling discarded 60"):
        loop.run(recipe_for(tmp_path, model_folder, engine, **changes))
    assert used(tmp_path) == EVERY_GROUP[:6]
    assert [line["turned_away_groups"] for line in metrics(tmp_path)] == [60, 60]
