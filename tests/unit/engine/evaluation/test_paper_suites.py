"""Suites of the papers: `--against` finds each set of the table, whole or by one draw."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from engine.config import Suite
from engine.offline.reference import find
from engine.offline.reference.names import matched
from tasks.sets.evaluation import EVALUATION
from tasks.sets.training import TRAINING
from toolwright.process.packaged import packaged

pytestmark = pytest.mark.quick

TABLES = {
    "math": "verltool:T4",
    "mtr": "mtr:main",
    "search": "verltool:T5",
    "searl": "searl:T1",
    "sql": "verltool:T6-sql",
    "visual": "verltool:T7-visual",
}
"""A table by the fragment whose suites are its sets."""
BESIDE = {
    "math": {"AIME25"},
    "sql": {"Spider Test", "Spider DK", "Spider Syn"},
    "searl": {f"{name} without memory" for name in find("searl:T1")[1].sets},
}
"""Suites that the paper names and the table does not have."""
FLASHRAG = {"search": "flashrag_", "mtr": "flashrag_"}
"""What precedes a file's name in `tasks list`."""
SPIDER = {"Spider Test": 2147, "Spider DK": 535, "Spider Syn": 1034}
"""Rows of the sets beside table 6."""
DRAWN = 500
"""Rows of a larger set, as SE-Search draws them."""


def suites(name: str) -> list[Suite]:
    file = packaged("recipes") / "presets/suites" / f"{name}.toml"
    tables: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    return [Suite.model_validate(one) for one in tables["engine"]["evaluation"]["suites"]]


@pytest.mark.parametrize("name", TABLES)
def test_every_set_of_the_table_is_a_suite(name: str) -> None:
    _, table = find(TABLES[name])
    found, others = matched([suite.name for suite in suites(name)], table)
    assert set(found.values()) == set(table.sets)
    assert set(others) == BESIDE.get(name, set())


@pytest.mark.parametrize("name", TABLES)
def test_a_suite_has_the_whole_set_or_one_draw(name: str) -> None:
    _, table = find(TABLES[name])
    found, _ = matched([suite.name for suite in suites(name)], table)
    for suite in suites(name):
        rows = table.sets.get(found.get(suite.name, ""))
        if rows is None:
            continue
        assert suite.n == (rows if rows < DRAWN or not drawn(suite) else DRAWN), suite.name


@pytest.mark.parametrize("name", TABLES)
def test_each_suite_is_a_set_that_tasks_converts(name: str) -> None:
    """A set whose rows `tasks list` gives is evaluated whole, in a table or beside it."""
    known = {layout.name: layout.rows for layout in (*EVALUATION, *TRAINING)}
    for suite in suites(name):
        stem = Path(suite.source).stem
        rows = known["spider" if name == "sql" else f"{FLASHRAG.get(name, '')}{stem}"]
        if suite.name in SPIDER:
            assert suite.n == SPIDER[suite.name]
        elif not drawn(suite) and (counted := re.match(r"[\d,]+(?=$|;)", rows)):
            assert suite.n == int(counted[0].replace(",", "")), suite.name


def drawn(suite: Suite) -> bool:
    return (suite.subset, suite.subset_seed) == ("random", 1)


@pytest.mark.parametrize("name", TABLES)
def test_each_suite_reads_a_file_of_its_own(name: str) -> None:
    sources = [suite.source for suite in suites(name)]
    asked = {(suite.source, str(suite.metadata)) for suite in suites(name)}
    assert len(asked) == len(sources)
    assert all(source.startswith("data/") and source.endswith(".jsonl") for source in sources)
