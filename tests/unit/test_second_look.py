"""Failed tests have a second look: the unlucky are named, the broken and the many fail the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import run

UNLUCKY = """
import pathlib, pytest

@pytest.mark.parametrize("name", {names})
def test_unlucky(name):
    seen = pathlib.Path(__file__).with_name(name)
    if not seen.exists():
        seen.touch()
        raise AssertionError("the first time")
"""
BROKEN = "def test_broken():\n    assert not 'ever'\n"
SOUND = "def test_sound():\n    pass\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run, "HOME", tmp_path)
    monkeypatch.setattr(run, "FAILED", tmp_path / ".pytest_cache/v/cache/lastfailed")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "test_sound.py").write_text(SOUND, encoding="utf-8")
    return tmp_path


def test_what_passes_at_the_second_look_is_named(home: Path) -> None:
    (home / "test_it.py").write_text(UNLUCKY.format(names=["a b", "c]["]), encoding="utf-8")
    assert run.twice("-n", "2") == (
        0,
        ["test_it.py::test_unlucky[a b]", "test_it.py::test_unlucky[c][]"],
    )
    assert run.twice() == (0, [])


def test_what_fails_twice_fails_the_run(home: Path) -> None:
    (home / "test_it.py").write_text(UNLUCKY.format(names=["a"]) + BROKEN, encoding="utf-8")
    assert run.twice() == (1, [])


def test_many_failures_have_no_second_look(home: Path) -> None:
    (home / "test_it.py").write_text(
        UNLUCKY.format(names=[str(n) for n in range(run.FEW + 1)]), encoding="utf-8"
    )
    assert run.twice() == (1, [])


def test_a_file_that_cannot_be_read_fails_the_run(home: Path) -> None:
    (home / "test_it.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    assert run.twice()[0] != 0
