"""serve.py starts SGLang, and no module of the folder that its user stands in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from console.machine.ready import free_ports
from toolwright.process.packaged import packaged


def test_modules_of_the_working_folder_are_not_the_servers(tmp_path: Path) -> None:
    for name in ("announced_server", "sglang"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('mine')", encoding="utf-8")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    serve = packaged("deploy/sglang-cpu") / "serve.py"
    done = subprocess.run(
        [sys.executable, str(serve), str(tmp_path), str(free_ports(1)[0])],
        cwd=tmp_path,
        env={**os.environ, "TOOLWRIGHT_SGLANG": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "mine" not in done.stderr
    assert "No module named 'sglang'" in done.stderr, "the tests' environment has none"
