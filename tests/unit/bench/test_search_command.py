"""`bench search`: which rows it measures, and what it counts of a build."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.search import command
from bench.search.footprint import cpu_of_ended, on_disk, peak_beside, private
from bench.search.measure import CASES


def test_rows_are_named_and_come_in_the_order_of_the_table() -> None:
    assert command._cases([]) == list(CASES)
    found = command._cases(["ivf-clustered", "bm25-text", "ivf-clustered"])
    assert [case.name for case in found] == ["bm25-text", "ivf-clustered"]


def test_a_row_that_is_none_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = CliRunner().invoke(app, ["search", "--only", "ivf"], env={"COLUMNS": "400"})
    assert done.exit_code == 2
    assert "'ivf': there are bm25-text, flat-clustered, ivf-clustered" in done.stderr
    assert not list(tmp_path.iterdir())


async def test_memory_that_a_child_had_only_for_a_while_is_seen() -> None:
    code = "import time; x = bytearray(96 << 20); x[::4096] = x[::4096]; time.sleep(1.5); del x"

    async def work() -> str:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        await child.wait()
        return "done"

    before = cpu_of_ended()
    result, peak = await peak_beside(work())
    assert result == "done"
    assert cpu_of_ended() > before
    assert 96 << 20 < peak < 4 << 30  # a fork has its parent's pages for a moment


async def test_what_fails_fails() -> None:
    async def work() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await peak_beside(work())


def test_a_process_that_is_gone_has_nothing(tmp_path: Path) -> None:
    assert private(2**22 + 1) == 0
    assert private(os.getpid()) > 0
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_bytes(b"12345")
    (tmp_path / "c").write_bytes(b"1")
    assert on_disk(tmp_path) == 6
