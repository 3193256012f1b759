"""What a power cut cannot take back: the order of flushes, as the kernel sees it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from learner import disk


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that were flushed and renamed, in order."""
    seen: list[str] = []
    flush, replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        seen.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        flush(handle)

    def rename(source: Path, target: Path, **_rest: object) -> None:
        seen.append(f"{Path(source).name} -> {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    return seen


def test_files_come_before_their_folder_and_all_before_the_name(
    tmp_path: Path, order: list[str]
) -> None:
    made = tmp_path / ".made"
    (made / "inner").mkdir(parents=True)
    (made / "inner" / "weights").write_bytes(b"w")
    (made / "config").write_text("{}", encoding="utf-8")
    disk.flush_tree(made)
    disk.rename_flushed(made, tmp_path / "whole")
    assert order.index("weights") < order.index("inner") < order.index(".made")
    assert order.index("config") < order.index(".made")
    assert order[-2:] == [".made -> whole", tmp_path.name]
    assert (tmp_path / "whole" / "inner" / "weights").read_bytes() == b"w"


def test_a_file_that_is_written_flushed_is_on_the_disk_before_anything_follows(
    tmp_path: Path, order: list[str]
) -> None:
    disk.write_flushed(tmp_path / "pointer", "step-1\n")
    assert order == ["pointer"]
    assert (tmp_path / "pointer").read_text(encoding="utf-8") == "step-1\n"


@pytest.mark.quick
def test_age_is_the_order_of_writing_although_the_clock_was_set_back(tmp_path: Path) -> None:
    """Folders are written one after the other, each by a clock that was set back once more."""
    written: list[Path] = []
    for number in range(4):
        newest = tmp_path / str(number)
        newest.mkdir()
        past = (5 - number) * 10**18 // 4
        os.utime(newest, ns=(past, past))
        assert disk.oldest_first(newest, reversed(written)) == written
        written.append(newest)
