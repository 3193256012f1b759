"""kill -9 in mid-run: nothing is trained twice, nothing is lost, finished groups stay the same."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from tests.chaos.conftest import Run, kill

pytestmark = pytest.mark.quick

GROUPS_PER_STEP = 2


def check_ledger(run: Run) -> None:
    """In the surviving lineage every step used its groups, each once, in the order of their
    numbers; every number up to the last is in the ledger or was dropped as stale."""
    entries, journal = run.ledger(), run.journal()
    numbers = [entry["sequence_number"] for entry in entries]
    assert numbers == sorted(set(numbers))
    assert len({entry["group"] for entry in entries}) == len(entries)
    assert Counter(entry["step"] for entry in entries) == Counter(
        {step: GROUPS_PER_STEP for step in range(8)}
    )
    for entry in entries:
        group, digest, dropped = journal[entry["sequence_number"]]
        assert (group, digest, dropped) == (entry["group"], entry["content_hash"], False)
    unused = set(range(1, max(numbers) + 1)) - set(numbers)
    assert all(journal[number][2] for number in unused), "a group was neither used nor dropped"


def test_the_learner_between_publish_and_checkpoint(run: Run) -> None:
    """Weights 4 and 5 were published after checkpoint 3 and die with the learner."""
    engine = run.engine()
    learner = run.learner()
    run.until(lambda: run.step() >= 5, "step 5")
    kill(learner)
    before = run.metrics()
    run.ended(run.learner())
    os.kill(engine.pid, signal.SIGTERM)
    run.ended(engine)

    check_ledger(run)
    after = run.metrics()[len(before) :]
    assert before[-1]["lineage"] != after[0]["lineage"]
    newest = max(entry["step"] for entry in before)
    assert after[0]["step"] == newest - newest % 3 + 1, "it did not resume the newest checkpoint"
    lineages = {entry["step"]: entry["lineage"] for entry in run.ledger()}
    assert len(set(lineages.values())) == 2
    assert (run.folder / "run" / "final" / "model.safetensors").is_file()


def test_the_engine_while_the_learner_lives_on(run: Run) -> None:
    """The learner waits, the engine comes back with the same groups under the same numbers."""
    engine = run.engine()
    learner = run.learner()
    run.until(lambda: run.step() >= 2, "step 2")
    kill(engine)
    offered = run.journal()
    engine = run.engine()
    run.ended(learner)
    os.kill(engine.pid, signal.SIGTERM)
    run.ended(engine)

    check_ledger(run)
    assert len({entry["lineage"] for entry in run.ledger()}) == 1
    now = run.journal()
    assert {number: now[number][:2] for number in offered} == {
        number: row[:2] for number, row in offered.items()
    }
    assert all(step["conflicting_groups"] == 0 for step in run.metrics())
