"""The example service in Node.js, in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "node-tool"
INSTALL = ("npm", "install", "--no-audit", "--no-fund", "--prefer-offline")


@contextmanager
def node_tool(log: Path) -> Iterator[str]:
    """Its address. It must end cleanly and have complained of nothing."""
    if shutil.which("npm") is None:
        pytest.fail("npm is missing: apt-get install nodejs npm")
    # In its own folder, where .gitignore leaves it: the second time npm has nothing to do.
    installed = subprocess.run(INSTALL, cwd=EXAMPLE, capture_output=True, text=True, timeout=180)
    assert installed.returncode == 0, installed.stderr
    assert not (EXAMPLE / "package-lock.json").exists()
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            ["node", "server.js", "127.0.0.1:0"],
            cwd=EXAMPLE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        code = process.wait(20)
    assert code == 0
    assert log.read_text(encoding="utf-8") == ""
