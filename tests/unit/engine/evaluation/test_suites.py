"""What a suite may say, and what it replaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from engine.config import Evaluation, Suite
from engine.serving.evaluation.suite import limits_of, sampling_of
from engine.serving.evaluation.suite_tasks import SuiteTasks
from toolwright.recipe import Limits
from toolwright.types import SamplingParams, WeightVersion

VERSION = WeightVersion(lineage="run", step=12)
PLAIN: dict[str, Any] = {"name": "heldout", "source": "heldout.jsonl", "n": 3}


def suite(**fields: Any) -> Suite:
    return Suite.model_validate({**PLAIN, **fields})


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "a\nb", "a\0b", "x" * 101, " x"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        suite(name=name)


@pytest.mark.parametrize("name", ["heldout", "curve-sampled", "held out", "v1.2+x", "größe"])
def test_other_names_are_taken(name: str) -> None:
    assert suite(name=name).name == name


def test_two_suites_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="two suites are named 'heldout'"):
        Evaluation.model_validate({"suites": [PLAIN, PLAIN]})


def test_a_suite_replaces_the_limits_that_it_names_and_no_others() -> None:
    task = Limits(turns=7, response=100)
    assert limits_of(suite(limits={"response": 200}), task) == Limits(turns=7, response=200)
    # Naming a default value is naming it.
    assert limits_of(suite(limits={"turns": 4}), task) == Limits(turns=4, response=100)
    assert limits_of(suite(), task) is task


@pytest.mark.parametrize("limits", [{"turn": 3}, {"response": 0}, {"seconds": -1}])
def test_limits_that_are_none_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        suite(limits=limits)


def test_a_suite_is_greedy_unless_it_says_otherwise_and_takes_the_rest_from_training() -> None:
    training = SamplingParams(temperature=1.0, top_p=0.5, top_k=20)
    assert sampling_of(suite(), training) == SamplingParams(temperature=0.0, top_p=0.5, top_k=20)
    own = suite(temperature=0.6, top_p=0.95, sampling_seed=0, max_new_tokens=9)
    assert sampling_of(own, training) == SamplingParams(
        temperature=0.6, top_p=0.95, top_k=20, seed=0, max_new_tokens=9
    )


async def test_metadata_is_laid_over_the_tasks(tmp_path: Path) -> None:
    rows = [{"question": "q", "metadata": {"own": 1, "memory": "big"}}, {"question": "r"}]
    (tmp_path / "heldout.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    laid = {"memory": "none", "before": "{version}", "{version}": 7, "odd": "{version} {other} {"}
    tasks = SuiteTasks(suite(n=2, metadata=laid), tmp_path, max_bad_rows=0)
    assert repr(laid) in await tasks.open()
    found = [drawn async for _, drawn in tasks.walk(lambda _: True, version=VERSION)]
    told = {"memory": "none", "before": "run.12", "{version}": 7, "odd": "run.12 {other} {"}
    assert [one.task.metadata for one in found] == [{"own": 1, **told}, told]  # type: ignore[union-attr]
    numbered = SuiteTasks(suite(n=1, metadata={"at": "{iteration}"}), tmp_path, max_bad_rows=0)
    for run, expected in (("", ""), ("root", "root.12")):
        numbered.run = run
        (only,) = [drawn async for _, drawn in numbered.walk(lambda _: True, version=VERSION)]
        assert only.task.metadata["at"] == expected  # type: ignore[union-attr]
    plain = SuiteTasks(suite(n=2), tmp_path, max_bad_rows=0)
    assert "with" not in await plain.open()
    found = [drawn async for _, drawn in plain.walk(lambda _: True, version=VERSION)]
    assert found[0].task.metadata == rows[0]["metadata"]  # type: ignore[union-attr]
