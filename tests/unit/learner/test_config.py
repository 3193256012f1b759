"""The tables: cheap to import, strict, consistent."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from learner.config.tables import LearnerTable, SftTable


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
