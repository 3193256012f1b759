"""The tables: cheap to import, strict, consistent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from learner.config.tables import LearnerTable, SftTable
from tests.support.recipes import recipe_tables, write_recipe
from toolwright.recipe import RecipeError, load_recipe, tables_in_force


def test_tables_import_without_torch() -> None:
    modules = "learner.config.tables, learner.cli"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


MUON, SPLIT = {"optimizer": {"kind": "muon"}}, {"parallel": {"tensor": 2}}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({**MUON, **SPLIT}, r"parallel\.tensor = 1"),
        ({**MUON, "parallel": {"expert": 2}}, r"parallel\.expert = 1"),
        ({**MUON, "parallel": {"distributed_optimizer": True}}, r"distributed_optimizer = false"),
        (
            {"parallel": {"overlap": True}, "vision": "trained"},
            r"vision tower.*parallel\.overlap = false",
        ),
        ({"parallel": {"sequence": True}}, r"parallel\.tensor above 1"),
        ({"lora": {}, "parallel": {"pipeline": 2}}, r"parallel\.pipeline = 1"),
        ({"lora": {}, "parallel": {"expert": 2}}, r"parallel\.expert = 1"),
        ({"lora": {}, **SPLIT}, r"lora adapts .*parallel\.tensor = 1"),
        ({"lora": {}, **MUON}, r"optimizer\.kind = 'adam'"),
        ({"lora": {"targets": ["q_proj", "q_proj"]}}, "named twice"),
        ({"loss": {"kind": "distill"}}, r"needs a teacher: set learner\.distill\.teacher"),
        (
            {
                "loss": {"kind": "distill"},
                "distill": {"teacher": "t"},
                "kl": {"coefficient": 0.1, "place": "reward"},
            },
            r"set learner\.kl\.place = 'loss'",
        ),
    ],
)
def test_ways_that_do_not_go_together_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        LearnerTable.model_validate(given)


@pytest.mark.parametrize("given", [{**MUON, **SPLIT}, {"lora": {}, **SPLIT}])
def test_imitation_refuses_them_too(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"parallel\.tensor = 1"):
        SftTable.model_validate({"data": "x", "steps": 1, **given})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, r"without \[learner\.lora\]"),
        ({"learner.publish.way": "group"}, r"set learner\.publish\.way = 'folder'"),
        ({"run.share_gpu": True}, "share_gpu = true with publish_adapters = true"),
    ],
)
def test_adapters_are_published_by_a_folder_where_there_are_some(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    """Every process that reads the learner's table refuses the others, and so `engine check`."""
    tables = recipe_tables(policy=tmp_path, sampler="http://a:1", tools={}, engine="b:1")
    lora = {} if says.startswith("without") else {"learner.lora.rank": 4}
    named = {"run.publish_adapters": True, **lora, **changes}
    file = write_recipe(tmp_path, tables)
    with pytest.raises(RecipeError, match=says):
        list(
            tables_in_force(
                load_recipe(file, [f"{key}={json.dumps(value)}" for key, value in named.items()])
            )
        )
    good = load_recipe(file, ["run.publish_adapters=true", "learner.lora.rank=4"])
    assert "learner" in dict(tables_in_force(good))


@pytest.mark.parametrize(
    ("given", "endpoint", "meet"),
    [
        ({"way": "group"}, "http://127.0.0.1:30000", True),
        ({"way": "group"}, "http://[::1]:30000", True),
        ({"way": "group"}, "http://gpu-7:30000", False),
        ({"way": "group", "address": "10.0.0.5"}, "http://gpu-7:30000", True),
        ({"way": "folder"}, "http://gpu-7:30000", True),
    ],
)
def test_samplers_elsewhere_do_not_meet_a_learner_at_loopback(
    given: dict[str, object], endpoint: str, meet: bool
) -> None:
    publish = LearnerTable.model_validate({"publish": given}).publish
    assert (publish.beyond([endpoint]) is None) is meet
