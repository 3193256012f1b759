"""SGLang's environment is looked for in one order, by the launcher and by everybody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.machine import sampler_home
from toolwright.imports import load_file
from toolwright.process.packaged import packaged

where = load_file(packaged("deploy/sglang-cpu") / "where.py")


@pytest.fixture(autouse=True)
def nothing_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a checkout nor an environment; the user stands in an empty folder."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(where, "HERE", tmp_path / "package")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv(where.VARIABLE, raising=False)


def made(folder: Path) -> Path:
    python = folder / "bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    return python


def test_nowhere_is_said_and_where_it_was_looked_for(tmp_path: Path) -> None:
    assert sampler_home.find() is None
    looked = [path.parents[1].relative_to(tmp_path) for path in sampler_home.candidates()]
    assert [str(path) for path in looked] == [
        "package/.venv-sglang",
        "work/.venv-sglang",
        "data/toolwright/sglang-cpu",
    ]


def test_the_nearest_counts(tmp_path: Path) -> None:
    for folder in ("data/toolwright/sglang-cpu", "work/.venv-sglang", "package/.venv-sglang"):
        python = made(tmp_path / folder)
        assert sampler_home.find() == python


def test_what_is_named_comes_first_and_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "package/.venv-sglang")
    monkeypatch.setenv(where.VARIABLE, "mine/bin/python")
    assert sampler_home.find() is None, "another one would be a surprise"
    python = made(tmp_path / "work/mine")
    assert sampler_home.find() == python
