"""docs/start/verl-tool.md names every option of VerlTool's agent, and keys that there are."""

from __future__ import annotations

import re

import pytest

from tests.support.docs import DOCS
from tests.support.docs_names import TABLES, has_key
from toolwright.recipe.diagnostics.synonyms import of_keys

PAGE = (DOCS / "start" / "verl-tool.md").read_text(encoding="utf-8")
ANYWHERE = re.compile(rf"`((?:{'|'.join(TABLES)})(?:\.[A-Za-z_]+)+)(?: = [^`]*)?`")
"""A key of ours, alone or with a value."""


OF_A_TASK = {"task.answers", "task.data_source"}
"""Fields of the record, which the page names in the same way."""


def section(heading: str) -> str:
    return re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]


def first_cells(heading: str) -> set[str]:
    rows = [line for line in section(heading).splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}


@pytest.mark.parametrize("key", sorted(set(ANYWHERE.findall(PAGE)) - OF_A_TASK))
def test_a_key_of_ours_on_the_page_is_one(key: str) -> None:
    assert has_key(key), key


@pytest.mark.parametrize(
    ("table", "key"),
    [("limits", "task.limits"), ("task", "task"), ("tool", "tools.NAME"), ("engine", "engine")],
)
def test_what_engine_check_calls_a_word_is_what_the_page_calls_it(table: str, key: str) -> None:
    rows = [line for line in section("The agent").splitlines() if line.startswith("| `")]
    for ours, theirs in of_keys(table).items():
        for word in first_cells("The agent").intersection(theirs):
            (row,) = (row for row in rows if f"`{word}`" in row.split(" | ")[0])
            assert f"`{key}.{ours}" in row, row
