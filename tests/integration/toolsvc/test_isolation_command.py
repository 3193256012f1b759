"""`toolsvc isolation`: the level that holds here, by the self-test, without a service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolsvc.sandbox.config import Isolation

pytestmark = pytest.mark.quick


def test_the_level_of_each_backend_is_told() -> None:
    done = isolation("--json", path=os.environ["PATH"])
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert set(found) == {"firejail", "bubblewrap"}
    levels = {answer["level"] for answer in found.values()}
    assert levels <= {level.value for level in Isolation if level is not Isolation.NONE}


def test_without_a_sandbox_the_mend_is_told_and_the_exit_code_is_1(tmp_path: Path) -> None:
    done = isolation("--sandbox", "firejail", path=str(tmp_path))
    assert done.returncode == 1
    assert "`apt-get install firejail`" in done.stdout


def isolation(*words: str, path: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "toolsvc.cli", "isolation", *words]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=60, env=environment
    )
