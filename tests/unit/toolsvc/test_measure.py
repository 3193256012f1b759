"""Counting and removing what foreign code left behind."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolsvc.sandbox.jailed.watching import measure

MIB = 1 << 20


@pytest.fixture
def top(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "session").mkdir()
    descriptor = os.open(tmp_path / "session", os.O_PATH)
    yield descriptor
    os.close(descriptor)


def nest(folder: Path, deep: int) -> None:
    """Folders in folders, deeper than a path can name."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(deep):
        os.mkdir("d", dir_fd=here)
        os.close(os.open("f", os.O_CREAT, dir_fd=here))
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_bytes_in_use_are_counted_and_links_are_not_followed(tmp_path: Path, top: int) -> None:
    folder = tmp_path / "session"
    (tmp_path / "outside").write_bytes(bytes(4 * MIB))
    (folder / "in").mkdir()
    (folder / "in" / "file").write_bytes(bytes(MIB))
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "up").symlink_to(tmp_path)
    with (folder / "sparse").open("wb") as file:
        file.truncate(64 * MIB)
    assert MIB <= measure.tree_bytes(top, 16 * MIB) < 1.1 * MIB


def test_empty_files_count(tmp_path: Path, top: int) -> None:
    for number in range(100):
        (tmp_path / "session" / str(number)).touch()
    assert measure.tree_bytes(top, MIB) >= 100 * 1024


def test_a_broad_tree_costs_no_descriptors(tmp_path: Path, top: int) -> None:
    for number in range(3000):
        (tmp_path / "session" / str(number)).mkdir()
    before = len(os.listdir("/proc/self/fd"))
    assert measure.tree_bytes(top, 1 << 40) < 1 << 40
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_deep_tree_counts_as_too_much(tmp_path: Path, top: int) -> None:
    nest(tmp_path / "session", 120)
    before = len(os.listdir("/proc/self/fd"))
    assert measure.tree_bytes(top, 1 << 40) > 1 << 40
    assert len(os.listdir("/proc/self/fd")) == before


def test_everything_is_removed(tmp_path: Path, top: int) -> None:
    folder = tmp_path / "session"
    nest(folder, 1500)
    # What the removal itself would like to call a folder that it moves.
    (folder / "moved1").mkdir()
    (folder / "moved2").write_text("x", encoding="utf-8")
    (folder / "link").symlink_to("/usr")
    (folder / "locked").mkdir()
    (folder / "locked" / "file").touch()
    (folder / "locked").chmod(0)
    folder.chmod(0)
    measure.remove_tree(top)
    assert os.listdir(tmp_path) == []


def test_descendants_are_all_below() -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os.read(read, 1)
        else:
            os.wait()
        os._exit(0)
    try:
        found: list[int] = []
        while len(found) < 2:
            found = measure.descendants(os.getpid())
        assert child in found
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
    assert child not in measure.descendants(os.getpid())
