"""Which run a journal belongs to, and a new run from another's weights."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
from pathlib import Path

import pytest

from engine.errors import PublishFailed, StartupError
from engine.serving.fork import fork_from
from engine.serving.journal import facts
from engine.serving.journal.identity import difference, policy_identity
from engine.serving.journal.journal import Journal
from engine.serving.journal.schema import FILE_NAME, open_read_only
from toolwright.types import WeightVersion

NOW = {"tokenizer": "aa11", "task source": "questions.jsonl#1f", "group size": "8"}
V3 = WeightVersion(lineage="a", step=3)


async def claimed(file: Path, identity: dict[str, str]) -> None:
    journal = Journal(file)
    try:
        await journal.claim(identity)
    finally:
        await journal.close()


async def test_the_same_run_goes_on_and_another_is_refused_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    await claimed(file, NOW)
    await claimed(file, dict(reversed(NOW.items())))
    with pytest.raises(StartupError) as caught:
        await claimed(file, {**NOW, "group size": "16"})
    said = str(caught.value)
    assert "its group size is '8', the recipe's is '16'" in said
    assert "`engine serve RECIPE --fork RUN`" in said
    assert "new run.folder" in said
    assert "\n" not in said
    await claimed(file, NOW)  # the refusal has changed nothing


async def test_a_long_value_is_shown_where_it_differs(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    options = {"protocol": "x" * 5000 + "old" + "y" * 5000}
    await claimed(file, options)
    with pytest.raises(StartupError) as caught:
        await claimed(file, {"protocol": "x" * 5000 + "new" + "y" * 5000})
    assert "xold" in str(caught.value)
    assert "xnew" in str(caught.value)
    assert len(str(caught.value)) < 700


def test_the_first_difference_is_named() -> None:
    assert difference(NOW, NOW) is None
    assert difference(NOW, {**NOW, "tokenizer": "bb"}) == ("tokenizer", "aa11", "bb")
    assert difference({"a": "1"}, {"a": "1", "b": "2"}) == ("b", "nothing", "2")
    assert difference({"a": "1", "b": "2"}, {"a": "1"}) == ("b", "2", "nothing")


def weights(folder: Path, shape: list[int], content: bytes, config: str = "{}") -> Path:
    folder.mkdir()
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, len(content)]}}
    ).encode()
    file = len(header).to_bytes(8, "little") + header + content
    (folder / "model.safetensors").write_bytes(file)
    (folder / "config.json").write_text(config, encoding="utf-8")
    return folder


def test_a_policy_is_told_by_its_shapes_and_not_by_its_weights(tmp_path: Path) -> None:
    first = policy_identity(weights(tmp_path / "a", [2], b"12345678"))
    assert first == policy_identity(weights(tmp_path / "b", [2], b"87654321"))
    assert first != policy_identity(weights(tmp_path / "c", [1, 2], b"12345678"))
    assert first != policy_identity(weights(tmp_path / "d", [2], b"12345678", '{"x": 1}'))


@pytest.mark.parametrize("file", [b"", b"\xff" * 8, b"\x10" + bytes(7) + b"short"])
def test_weights_that_are_no_safetensors_are_refused(tmp_path: Path, file: bytes) -> None:
    folder = weights(tmp_path / "a", [2], b"12345678")
    (folder / "model.safetensors").write_bytes(file)
    with pytest.raises(StartupError, match=r"model\.safetensors (cannot be read|has 0 bytes)"):
        policy_identity(folder)
    with pytest.raises(StartupError, match=r"config\.json cannot be read"):
        policy_identity(tmp_path / "nowhere")


async def test_weights_are_flushed_before_the_journal_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = weights(tmp_path / "weights", [2], b"12345678")
    (path / "deep").mkdir()
    (path / "deep" / "more.safetensors").write_bytes(b"x")
    (path / "dangling").symlink_to(path / "nothing")
    file = tmp_path / "run" / FILE_NAME
    journal = Journal(file)
    flushed, real = set(), os.fsync

    def fsync(descriptor: int) -> None:
        with contextlib.closing(open_read_only(file)) as db:
            assert facts.newest_version(db) is None
        flushed.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    await journal.set_version(V3, path, None)
    names = ["config.json", "model.safetensors", "deep", "deep/more.safetensors", "", ".."]
    assert flushed == {str((path / name).resolve()) for name in names}
    assert await journal.newest_version() == (V3, path)
    await journal.close()


async def test_weights_that_cannot_be_flushed_are_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_descriptor: int) -> None:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(os, "fsync", fsync)
    journal = Journal(tmp_path / FILE_NAME)
    with pytest.raises(PublishFailed, match=r"cannot be flushed.*broken disk"):
        await journal.set_version(V3, weights(tmp_path / "weights", [2], b"12345678"), None)
    assert await journal.newest_version() is None
    await journal.close()


async def test_a_fork_takes_the_newest_weights_also_of_a_run_in_progress(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    journal = Journal(old / FILE_NAME)
    path = weights(tmp_path / "weights", [2], b"12345678")
    await journal.set_version(WeightVersion(lineage="a", step=2), tmp_path / "gone", None)
    await journal.set_version(V3, path, None)
    assert fork_from(old, new) == (V3, path)
    await journal.close()
    assert fork_from(old, new) == (V3, path)
    assert not new.exists()


async def test_a_journal_of_an_older_engine_can_be_forked(tmp_path: Path) -> None:
    path = weights(tmp_path / "weights", [2], b"12345678")
    (tmp_path / "old").mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / "old" / FILE_NAME)) as db, db:
        db.execute(
            "CREATE TABLE versions (lineage TEXT NOT NULL, step INTEGER NOT NULL,"
            " path TEXT NOT NULL, published INTEGER PRIMARY KEY AUTOINCREMENT)"
        )
        db.execute("INSERT INTO versions VALUES ('a', 3, ?, 1)", (str(path),))
    assert fork_from(tmp_path / "old", tmp_path / "new") == (V3, path)


async def test_a_fork_is_refused_with_a_sentence(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with pytest.raises(StartupError, match="no run in"):
        fork_from(old, new)
    old.mkdir()
    (old / FILE_NAME).write_text("garbage " * 1000, encoding="utf-8")
    with pytest.raises(StartupError, match="cannot be read"):
        fork_from(old, new)
    (old / FILE_NAME).unlink()
    journal = Journal(old / FILE_NAME)
    with pytest.raises(StartupError, match="has published no weights"):
        fork_from(old, new)
    await journal.set_version(V3, tmp_path / "gone", None)
    with pytest.raises(StartupError, match=r"a\.3 .* not in"):
        fork_from(old, new)
    with pytest.raises(StartupError, match="opens a new run"):
        fork_from(old, old)
    await journal.close()
