"""`bench tools` teaches, and refuses what it cannot do before it starts anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "bench.cli", "tools"]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options], capture_output=True, text=True, timeout=60, check=False
    )


def test_help_teaches() -> None:
    help_text = run("--help").stdout
    for words in ("the floor", "Examples:", "--grid verltool", "hello (print", "burst     every"):
        assert words in help_text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workload", "helo"], "hello, noop, sleep, stateful, mixed"),
        (["--mode", "open"], "--rate"),
        (["--grid", "other"], "there is verltool"),
        (["--target", "127.0.0.1:1", "--", "--ready", "3"], "runs already"),
        (["--compare", "nowhere.json"], "No such file"),
        (["--json", "no/such/folder/x.json"], "make it first"),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], words: str, tmp_path: Path) -> None:
    done = run(*options)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_target_that_does_not_answer_is_named_with_the_mend() -> None:
    done = run("--target", "127.0.0.1:1")
    assert done.returncode == 1
    assert "--target 127.0.0.1:1 does not answer" in done.stderr
    assert "toolsvc serve python" in done.stderr
