"""The tutorials of the docs are done word for word. Two go on in the folder of the first one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.walkthrough import do, fits, read_walkthrough

# A run of four processes in each, whatever else runs.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of docs/train/from-nothing.md, after its run."""
    folder = tmp_path_factory.mktemp("walkthrough") / "cities"
    folder.mkdir()
    do(read_walkthrough("train/from-nothing.md"), folder)
    return folder


def test_a_run_from_nothing(trained: Path) -> None:
    assert (trained / "run/final/config.json").is_file()
    assert json.loads((trained / "run/summary.json").read_text(encoding="utf-8"))


def test_two_evaluations_compared(trained: Path) -> None:
    do(read_walkthrough("train/two-evaluations.md"), trained)


def test_an_engine_is_killed_and_resumed(trained: Path) -> None:
    do(read_walkthrough("operate/killed-and-resumed.md"), trained)


@pytest.mark.parametrize(
    ("shown", "said", "same"),
    [
        ("a  b\n", "a b  \n", True),
        ("a ... c\n", "a b c\n", True),
        ("a ... c\n", "a b\nc\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nd\n", True),
        ("a\n", "a\nb\n", False),
        ("", "a\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_what_is_shown_is_what_is_said(shown: str, said: str, same: bool) -> None:
    assert fits(shown, said) is same
