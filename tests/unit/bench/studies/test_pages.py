"""The pages of studies: their tables and pictures are those of the committed figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.studies.command import FIGURES, MODULES, PICTURES, study_of

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[4]
MEASURED = [name for name in MODULES if (ROOT / FIGURES / f"{name}.json").exists()]


@pytest.mark.parametrize("name", MEASURED)
def test_a_page_has_the_table_and_the_picture_of_its_figures(name: str) -> None:
    study = study_of(name)
    figures = json.loads((ROOT / FIGURES / f"{name}.json").read_text(encoding="utf-8"))
    page = (ROOT / PICTURES / f"{name}.md").read_text(encoding="utf-8")
    for part in study.table(figures).split("\n\n"):
        assert part in page
    picture = (ROOT / PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    assert study.picture(figures) == picture


def test_every_page_of_a_study_is_in_the_index() -> None:
    index = (ROOT / PICTURES / "index.md").read_text(encoding="utf-8")
    for name in MEASURED:
        assert f"({name}.md)" in index
