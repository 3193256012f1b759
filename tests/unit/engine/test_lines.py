"""JSON lines that only grow, through kills and full disks."""

from __future__ import annotations

import asyncio
import resource
import signal
from pathlib import Path

import pytest

from engine.serving import json_lines as lines
from engine.serving.json_lines import JsonLines, append_whole
from tests.support.waiting import holds_for, until


def text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("left", "whole"),
    [
        ("", ""),
        ('{"a":1}\n', '{"a":1}\n'),
        ('{"a":1}\n{"a":', '{"a":1}\n'),
        ('{"a":', ""),
        ('{"a":1}\n' + "x" * 200_000, '{"a":1}\n'),
        ("x" * 200_000, ""),
    ],
)
async def test_what_a_kill_cut_is_taken_away(tmp_path: Path, left: str, whole: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(left, encoding="utf-8")
    found = JsonLines(file)
    found.cut_partial_line()
    assert text(file) == whole
    await found.append({"b": 2})
    assert text(file) == whole + '{"b":2}\n'


async def test_a_file_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    found = JsonLines(tmp_path / "none" / "rows.jsonl")
    found.cut_partial_line()
    assert list(found.read()) == []
    await found.append({"a": 1}, {"a": 2})
    assert list(found.read()) == [{"a": 1}, {"a": 2}]


async def test_what_is_no_object_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'{"a":1}\n\0\0\0\n[1]\nnull\n\n{"a":2}\n')
    assert list(JsonLines(file).read()) == [{"a": 1}, {"a": 2}]


async def test_a_full_disk_is_waited_for_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "FULL_SECONDS", 0.01)
    file = tmp_path / "rows.jsonl"
    file.symlink_to("/dev/full")
    found = JsonLines(file)
    first = asyncio.create_task(found.append({"a": 1}))
    second = asyncio.create_task(found.append({"a": 2}))
    await until(lambda: found.full, "the full disk")
    await holds_for(0.05, lambda: not first.done(), "the row to wait for room")
    assert not first.done()
    file.unlink()
    await asyncio.gather(first, second)
    assert not found.full
    assert list(found.read()) == [{"a": 1}, {"a": 2}]


async def test_another_failure_is_raised(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").mkdir()
    with pytest.raises(IsADirectoryError):
        await JsonLines(tmp_path / "rows.jsonl").append({"a": 1})


def test_a_write_that_fails_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows"
    file.write_bytes(b"whole")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            append_whole(file, [b"x" * 1000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert file.read_bytes() == b"whole"
