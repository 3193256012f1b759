"""Folders of published weights: which of them go at a start, and which after a publish."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from learner.saving.publish import delete_old, sweep
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick


def folders(root: Path, *names: str) -> None:
    """Folders of these names, each older than the next."""
    for age, name in enumerate(names):
        (root / name).mkdir()
        os.utime(root / name, (1000 + age, 1000 + age))


def left(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_a_start_removes_what_the_engine_was_not_named(tmp_path: Path) -> None:
    """The engine reads the newest version's folder again when it starts."""
    folders(tmp_path, "a-1", "a-2", "a-3", "a-10", "b-9", ".a-4", "notes")
    sweep(tmp_path, WeightVersion(lineage="a", step=2))
    assert left(tmp_path) == {"a-1", "a-2", "b-9", "notes"}


def test_without_a_version_a_start_removes_unfinished_folders_alone(tmp_path: Path) -> None:
    folders(tmp_path, "a-1", ".a-2")
    sweep(tmp_path, None)
    assert left(tmp_path) == {"a-1"}
    sweep(tmp_path / "missing", None)


@pytest.mark.parametrize(
    ("kept", "stay"), [(1, {"a-3"}), (2, {"a-3", "b-9"}), (9, {"a-1", "b-9", "a-3"})]
)
def test_the_newest_folders_stay_after_a_publish(tmp_path: Path, kept: int, stay: set[str]) -> None:
    folders(tmp_path, "a-1", "b-9", "a-3")
    delete_old(tmp_path, tmp_path / "a-3", kept)
    assert left(tmp_path) == stay
