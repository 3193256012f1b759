"""`learner run` with two tasks: what its lines tell of each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from learner import run as loop
from tests.integration.learner.fake_engine import FakeEngine, random_group
from tests.integration.learner.test_run import metrics, recipe_for
from toolwright import types as t

pytestmark = pytest.mark.slow


def of_two_tasks(number: int, version: t.WeightVersion, folder: Path) -> list[t.Trajectory]:
    """Every third group is of `finds`, as in a batch of three with one of it."""
    name = "sums" if number % 3 else "finds"
    group = random_group(number, version, folder)
    return [replace(one, task=replace(one.task, name=name)) for one in group]


def test_every_line_tells_of_each_task_and_now_and_then_whether_they_agree(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    changes = {
        "tasks.sums.share": 2,
        "tasks.finds.weight": 0.5,
        "learner.conflict_every": 2,
        "learner.kl.coefficient": 0.1,
    }
    engine.write = of_two_tasks
    loop.run(recipe_for(tmp_path, model_folder, engine, **changes))
    lines = metrics(tmp_path)
    assert len(lines) == 4
    for line in lines:
        assert (line["task/sums/groups"], line["task/finds/groups"]) == (2, 1)
        assert (
            line["task/sums/trained_tokens"] + line["task/finds/trained_tokens"]
            == (line["trained_tokens"])
        )
        assert line["task/sums/loss"] + line["task/finds/loss"] == (
            pytest.approx(line["loss"], abs=1e-5)
        )
        for name in ("reward", "entropy", "kl_reference", "response_length", "stop/answered"):
            assert f"task/sums/{name}" in line and f"task/finds/{name}" in line
    looked = ["gradient_cosine/sums,finds" in line for line in lines]
    assert looked == [True, False, True, False]
    assert all(-1 <= line["gradient_cosine/sums,finds"] <= 1 for line in lines[::2])
    assert lines[0]["task/finds/grad_norm"] > 0
