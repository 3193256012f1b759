"""A tracker beside a run: where it looks for modules, and what becomes of what it says."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from console.track.beside import _pass_on, tracking
from console.track.tracker import FOLDER
from tests.support.waiting import until


async def test_a_package_of_the_users_is_not_the_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "console").mkdir()
    for name in ("__init__", "cli"):
        (tmp_path / "console" / f"{name}.py").write_text("open('mine', 'w')", encoding="utf-8")
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    async with tracking(
        tmp_path / "run", ("tensorboard",), log=tmp_path / "track.log", say=lambda _text: None
    ):
        mine, lock = tmp_path / "mine", tmp_path / "run" / FOLDER / "tensorboard.lock"
        await until(lambda: mine.exists() or lock.exists(), "either's sign")
    assert not mine.exists()


async def test_a_log_that_takes_nothing_more_does_not_hold_the_tracker_up() -> None:
    """What it says is more than a pipe holds."""
    program = "import sys; sys.stderr.write('x' * 99 + '\\n' + ('y' * 99 + '\\n') * 9999)"
    program += "; sys.stderr.write('track: the end\\n')"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stderr=asyncio.subprocess.PIPE
    )
    said: list[str] = []

    def full(_line: bytes) -> None:
        raise OSError(28, "No space left on device")

    async with asyncio.timeout(30):
        await _pass_on(process, full, said.append)
        assert await process.wait() == 0
    assert said == ["track: the end"]
