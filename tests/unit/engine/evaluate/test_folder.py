"""An evaluation's folder belongs to one evaluation and one process, and nothing in it is lost."""

from __future__ import annotations

import fcntl
import re
from pathlib import Path
from typing import BinaryIO

import pytest

from engine.errors import StartupError
from engine.offline.evaluate.folder import EvaluationFolder, read_settings
from engine.serving.evaluation.results import rows_file
from tests.support.evaluated import begun


def test_what_it_was_begun_with_is_read_back_and_stays(tmp_path: Path) -> None:
    folder = EvaluationFolder(tmp_path / "eval")
    folder.claim()
    assert folder.begin(begun(("nq", 4), subset="2 of seed 7")) is None
    before = (tmp_path / "eval" / "settings.json").read_bytes()
    folder.begin(begun(("nq", 4), subset="2 of seed 7"))
    folder.close()
    assert (tmp_path / "eval" / "settings.json").read_bytes() == before
    assert read_settings(tmp_path / "eval") == begun(("nq", 4), subset="2 of seed 7")


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    folder = EvaluationFolder(tmp_path)
    folder.claim()
    folder.begin(begun(("nq", 4), subset="all"))
    says = r"was begun with subset 'all', not '2 of seed 7': .* --fresh"
    with pytest.raises(StartupError, match=says):
        folder.begin(begun(("nq", 4), subset="2 of seed 7"))
    with pytest.raises(StartupError, match="was begun with subset 'all', not none"):
        folder.begin(begun(("nq", 4)))
    folder.close()


def test_fresh_sets_aside_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "eval"
    for number in (1, 2):
        folder = EvaluationFolder(path)
        folder.claim()
        folder.begin(begun(("nq", number)), fresh=True)
        folder.close()
        folder.claim()
        aside = folder.begin(begun(("nq", number + 1)), fresh=True)
        assert aside == tmp_path / f"eval.before-{2 * number - 1}"
        with pytest.raises(StartupError, match="in use by another"):
            EvaluationFolder(path).claim()
        folder.close()
    assert read_settings(tmp_path / "eval.before-1").suites[0].n == 1
    assert read_settings(path).suites[0].n == 3


def test_a_lock_of_a_folder_that_was_set_aside_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, moved = tmp_path / "eval", tmp_path / "eval.before-1"
    flock = fcntl.flock

    def late(lock: BinaryIO, how: int) -> None:
        """The folder is renamed between the opening of its lock and the locking."""
        if not moved.exists():
            path.rename(moved)
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", late)
    folder = EvaluationFolder(path)
    folder.claim()
    with pytest.raises(StartupError, match="in use by another"):
        EvaluationFolder(path).claim()
    folder.close()


def test_an_owner_is_drawn_once_a_folder(tmp_path: Path) -> None:
    found = EvaluationFolder(tmp_path)
    owner = found.owner()
    assert EvaluationFolder(tmp_path).owner() == owner
    # Another host's folder of the same path.
    (tmp_path / "owner").unlink()
    other = found.owner()
    assert other != owner
    (tmp_path / "owner").write_bytes(b"\xff" * 32)
    assert found.owner() not in (owner, other)
    found.claim()  # of a life that ended before it began
    found.close()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious", encoding="utf-8")
    with pytest.raises(StartupError, match=r"holds 'thesis\.tex' and no evaluation"):
        EvaluationFolder(tmp_path).claim()
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(StartupError, match="cannot be a folder"):
        EvaluationFolder(tmp_path / "thesis.tex").claim()
    with pytest.raises(StartupError, match="holds no evaluation"):
        read_settings(tmp_path)


def test_a_start_that_was_killed_leaves_a_folder_that_can_be_begun(tmp_path: Path) -> None:
    (tmp_path / "settings.json.4711.unfinished").write_text('{"form', encoding="utf-8")
    (tmp_path / "lock").touch()
    folder = EvaluationFolder(tmp_path)
    folder.claim()
    folder.begin(begun(("nq", 1)))
    folder.close()
    assert read_settings(tmp_path).suites[0].n == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not what `engine eval` wrote"),
        ("[1]", "is not what `engine eval` wrote"),
        ('{"format": 1}', "is not what `engine eval` wrote: KeyError"),
        ('{"format": 2}', "has format 2, this version reads 1"),
        ("\xff", "is not what `engine eval` wrote"),
    ],
)
def test_settings_that_nobody_wrote_are_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "settings.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(StartupError, match=re.escape(says)):
        read_settings(tmp_path)


def test_rows_of_weights_whose_name_is_a_long_path_have_a_file(tmp_path: Path) -> None:
    (tmp_path / "evaluations").mkdir()
    versions = [f"{'/models' * 40}/{name}.0" for name in "ab"]
    files = {rows_file(tmp_path, "nq", version) for version in versions}
    for file in files:
        file.touch()
    assert len(files) == 2
    assert rows_file(tmp_path, "nq", "default.0").name == "nq@default.0.jsonl"
