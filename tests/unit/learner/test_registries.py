"""Every name that a recipe may choose has both halves: its entry and its function, and its docs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import learner.maths.losses as losses
from learner.config.objective import Advantage, Correction, Kl, Loss
from learner.credit.episode import OVER_BATCH
from learner.maths import aggregation, correction, kl
from toolwright.credit.corrections import CORRECTIONS
from toolwright.credit.entries import Entry
from toolwright.credit.estimators import ESTIMATORS
from toolwright.credit.losses import AGGREGATIONS, KL_ESTIMATORS, LOSSES
from toolwright.recipe import Table

pytestmark = pytest.mark.quick

DOCS = Path(__file__).parents[3] / "docs" / "train"
FILES = {file.stem for file in Path(losses.__file__).parent.glob("*.py")} - {"__init__"}


@pytest.mark.parametrize(
    ("names", "functions"),
    [
        (LOSSES, FILES),
        (AGGREGATIONS, aggregation.WEIGHTS),
        (KL_ESTIMATORS, kl.ESTIMATES),
        ([name for name, entry in CORRECTIONS.items() if entry.weighs], correction.WEIGHTS),
        ([name for name, entry in ESTIMATORS.items() if entry.of_groups is None], OVER_BATCH),
    ],
)
def test_every_name_has_a_function(names: Iterable[str], functions: Iterable[str]) -> None:
    assert set(names) == set(functions)


@pytest.mark.parametrize("kind", LOSSES)
def test_the_file_of_a_loss_has_the_loss(kind: str) -> None:
    assert callable(losses.loss_function(kind))


@pytest.mark.parametrize(
    ("entries", "table"),
    [
        (LOSSES, Loss),
        (AGGREGATIONS, Loss),
        (KL_ESTIMATORS, Kl),
        (CORRECTIONS, Correction),
        (ESTIMATORS, Advantage),
    ],
)
def test_an_entry_names_keys_of_its_table(entries: Mapping[str, Entry], table: type[Table]) -> None:
    assert {key for entry in entries.values() for key in entry.keys} <= table.model_fields.keys()
    also = [word for entry in entries.values() for word in entry.also]
    assert len(also) == len(set(also)) and not set(also) & set(entries)


def test_the_tables_take_every_name_and_say_it() -> None:
    for name in LOSSES:
        assert f"loss {name}" in Loss(kind=name).summary
        for mode in AGGREGATIONS:
            assert f", {mode}" in Loss(kind=name, aggregation=mode).summary
    for name in ESTIMATORS:
        assert f"advantages {name}" in Advantage(estimator=name).summary
    for name in KL_ESTIMATORS:
        assert name in Kl(coefficient=0.1, estimator=name).summary
    for name in CORRECTIONS:
        assert f"correction {name}" in Correction().summary(name)


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("objective.md", "learner.loss.kind", LOSSES),
        ("objective.md", "run.correction", CORRECTIONS),
        ("advantages.md", "estimator", ESTIMATORS),
    ],
)
def test_the_pages_have_a_row_for_every_name(page: str, heading: str, names: Iterable[str]) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    _, _, table = text.partition(f"\n| `{heading}` |")
    rows = re.findall(r"^\| `\"?([^`\"]+)\"?` \|", table.split("\n\n")[0], re.M)
    assert set(rows) == set(names)
