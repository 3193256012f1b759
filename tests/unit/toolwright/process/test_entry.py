"""Ctrl-C while a command is still imported: one line and 130, and from `main` on as ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from toolwright.process import entry
entry._enter("engine", "slow_command")
"""


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (
            "print('ready', flush=True)\nsignal.pause()\n",
            130,
            "engine: interrupted before it began\n",
        ),
        (
            "def main():\n"
            "    try:\n"
            "        print('ready', flush=True)\n"
            "        signal.pause()\n"
            "    except KeyboardInterrupt:\n        sys.exit('as main says')\n",
            1,
            "as main says\n",
        ),
    ],
)
def test_a_signal(tmp_path: Path, body: str, status: int, said: str) -> None:
    (tmp_path / "slow_command.py").write_text(f"import signal, sys\n{body}")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(folder=str(tmp_path))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[1] == said
    finally:
        process.kill()
        process.wait()
    assert process.returncode == status
