"""How a learner joins engines that tell nothing, tell nonsense, or change while it looks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learner.errors import EngineError, MismatchError
from learner.intake.agree import join
from learner.intake.client import EngineClient
from tests.integration.learner.fake_engine import FakeEngine
from tests.support.recipes import recipe_tables, to_toml
from toolwright.model.fingerprint import canonical_terms, terms_of
from toolwright.policy.v1 import policy_pb2
from toolwright.recipe import Recipe, load_recipe
from toolwright.types import WeightVersion


class Telling(FakeEngine):
    """Answers each GetPolicy with the next fingerprint, then with the last one."""

    def __init__(self, *told: policy_pb2.Fingerprint) -> None:
        super().__init__()
        self.version = WeightVersion(lineage="a", step=3)
        self._told = list(told)

    def GetPolicy(self, request: Any, context: Any) -> policy_pb2.GetPolicyResponse:
        answer = super().GetPolicy(request, context)
        if self._told:
            answer.fingerprint.CopyFrom(self._told.pop(0) if len(self._told) > 1 else self._told[0])
        return answer


@pytest.fixture
def recipe(tmp_path: Path, policy_folder: Path) -> Recipe:
    tables = recipe_tables(policy=policy_folder, sampler="http://a:1", tools={}, engine="a:2")
    (tmp_path / "recipe.toml").write_text(to_toml(tables), encoding="utf-8")
    return load_recipe(tmp_path / "recipe.toml")


@pytest.fixture
def engines() -> Iterator[list[FakeEngine]]:
    made: list[FakeEngine] = []
    yield made
    for engine in made:
        engine.stop()


def joined(engine: FakeEngine, recipe: Recipe, source: Path) -> tuple[WeightVersion, list[str]]:
    said: list[str] = []
    with EngineClient(engine.address, patience=5, say=said.append) as client:
        version = join(client, recipe, source, lineage="a", say=said.append)
    assert version is not None
    return version, said


def told(recipe: Recipe, **changes: Any) -> policy_pb2.Fingerprint:
    terms = terms_of(recipe.shared) | {"run.seed": changes.pop("seed", 0)}
    folder = str(recipe.run_folder)
    return policy_pb2.Fingerprint(recipe=canonical_terms(terms), folder=folder, **changes)


def test_an_engine_that_tells_nothing_is_said_and_joined(
    engines: list[FakeEngine], recipe: Recipe, policy_folder: Path
) -> None:
    engines.append(Telling())
    version, said = joined(engines[0], recipe, policy_folder)
    assert version == WeightVersion(lineage="a", step=3)
    assert len(said) == 1
    assert "not compared" in said[0]
    assert len(engines[0].learners) == 1


def test_an_engine_that_tells_a_part_is_compared_in_that_part(
    engines: list[FakeEngine], recipe: Recipe, policy_folder: Path
) -> None:
    engines += [Telling(policy_pb2.Fingerprint()), Telling(told(recipe)), Telling(told(recipe))]
    for engine in engines:
        assert joined(engine, recipe, policy_folder)[1] == []
    engines.append(Telling(told(recipe, seed=1)))
    with pytest.raises(MismatchError, match=r"run\.seed is 1 in the engine and 0 here"):
        joined(engines[-1], recipe, policy_folder)
    assert engines[-1].learners == []


def test_another_engine_that_comes_in_between_is_noticed(
    engines: list[FakeEngine], recipe: Recipe, policy_folder: Path
) -> None:
    engines.append(Telling(told(recipe), told(recipe, seed=1)))
    with pytest.raises(MismatchError, match=r"run\.seed"):
        joined(engines[0], recipe, policy_folder)


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_recipe_that_is_no_object_is_named(
    engines: list[FakeEngine], recipe: Recipe, policy_folder: Path, text: str
) -> None:
    engines.append(Telling(policy_pb2.Fingerprint(recipe=text)))
    with pytest.raises(EngineError, match="JSON object"):
        joined(engines[0], recipe, policy_folder)


def test_a_policy_folder_without_tokenizer_is_said(
    engines: list[FakeEngine], recipe: Recipe, tmp_path: Path
) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text("{}", encoding="utf-8")
    bare = load_recipe(recipe.path, [f"policy.model={tmp_path / 'bare'}"])
    engines.append(Telling(told(bare, tokenizer_hash="x")))
    _, said = joined(engines[0], bare, tmp_path / "bare")
    assert any("the tokenizer is not compared" in line for line in said)
