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


@pytest.mark.parametrize("table", [LearnerTable, SftTable])
def test_muon_needs_whole_matrices(table: type[LearnerTable] | type[SftTable]) -> None:
    given = {"optimizer": {"kind": "muon"}, "parallel": {"tensor": 2}, "data": "x", "steps": 1}
    if table is LearnerTable:
        del given["data"], given["steps"]
    with pytest.raises(ValidationError, match=r"parallel\.tensor = 1"):
        table.model_validate(given)


def test_a_sequence_is_split_over_tensor_parallel_ranks_alone() -> None:
    with pytest.raises(ValidationError, match=r"parallel\.tensor above 1"):
        LearnerTable.model_validate({"parallel": {"sequence": True}})
    LearnerTable.model_validate({"parallel": {"sequence": True, "tensor": 2}})


def test_muon_moves_no_split_matrices() -> None:
    given = {"optimizer": {"kind": "muon"}, "parallel": {"expert": 2}}
    with pytest.raises(ValidationError, match=r"parallel\.expert = 1"):
        LearnerTable.model_validate(given)
    given = {"optimizer": {"kind": "muon"}, "parallel": {"distributed_optimizer": True}}
    with pytest.raises(ValidationError, match=r"parallel\.distributed_optimizer = false"):
        LearnerTable.model_validate(given)


@pytest.mark.parametrize(
    ("given", "mend"),
    [
        ({"recompute": "full"}, "recompute = 'selective'"),
        ({"parallel": {"pipeline": 2}}, r"parallel\.pipeline = 1"),
        ({"parallel": {"expert": 2}}, r"parallel\.expert = 1"),
    ],
)
def test_adapters_get_their_gradient(given: dict[str, object], mend: str) -> None:
    with pytest.raises(ValidationError, match=mend):
        LearnerTable.model_validate({"lora": {}, **given})


@pytest.mark.parametrize("table", [LearnerTable, SftTable])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lora": {}, "parallel": {"tensor": 2}}, r"lora adapts .*parallel\.tensor = 1"),
        ({"lora": {}, "optimizer": {"kind": "muon"}}, r"optimizer\.kind = 'adam'"),
        ({"lora": {"targets": ["q_proj", "q_proj"]}}, "named twice"),
    ],
)
def test_adapters_that_cannot_be(
    table: type[LearnerTable] | type[SftTable], given: dict[str, object], says: str
) -> None:
    needed = {} if table is LearnerTable else {"data": "x", "steps": 1}
    with pytest.raises(ValidationError, match=says):
        table.model_validate({**needed, **given})
    assert table.model_validate({**needed, "lora": {}}).lora is not None


@pytest.mark.parametrize(
    ("given", "endpoint", "meet"),
    [
        ({"way": "group"}, "http://127.0.0.1:30000", True),
        ({"way": "group"}, "http://localhost:30000", True),
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
