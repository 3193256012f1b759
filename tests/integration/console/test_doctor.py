"""`toolwright doctor` as it is typed: on a recipe whose world is not in order, and in a bare
installation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from console.machine.ready import free_ports
from tests.support.recipes import to_toml

pytestmark = pytest.mark.quick

BARE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"aiohttp", "jinja2", "tensorboard", "torch", "uvloop"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from console.cli import main
main()
"""


def test_a_recipe_whose_world_is_not_in_order(tmp_path: Path) -> None:
    (free,) = free_ports(1)
    with stranger() as sampler, stranger() as engine:
        recipe = write(
            tmp_path,
            engine=f"127.0.0.1:{engine}",
            sampler=f"http://127.0.0.1:{sampler}",
            tools=f"127.0.0.1:{free}",
        )
        done = doctor(str(recipe), "--json", "--bundle", str(tmp_path / "b.zip"))
    assert done.returncode == 1
    found = json.loads(done.stdout)
    problems = {one["subject"]: one for one in found if one["level"] == "problem"}
    assert set(problems) == {"recipe", "sampler", "tools", "engine's port"}
    assert "policy.model" in problems["recipe"]["sentence"]
    me = f"process {os.getpid()}"
    for subject, port in (("sampler", sampler), ("engine's port", engine)):
        assert str(port) in problems[subject]["sentence"]
        assert me in problems[subject]["sentence"]
        assert "0 is any free" in problems[subject]["fix"]
    assert f"no server answers at 127.0.0.1:{free}" in problems["tools"]["sentence"]
    fine = {one["subject"] for one in found if one["level"] == "ok"}
    assert {"Python", "packages", "disk", "clock", "sandbox", "torch", "run folder"} <= fine
    # The worst comes first.
    assert [one["level"] for one in found] == sorted(
        (one["level"] for one in found), key=("ok", "warning", "unknown", "problem").index
    )
    assert "4 problems" in done.stderr
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        assert json.loads(archive.read("doctor.json"))
        assert "recipe.toml" in archive.namelist()
    assert f"{tmp_path}/b.zip" in done.stderr


def test_a_bare_installation_is_told_what_it_lacks(tmp_path: Path) -> None:
    (free,) = free_ports(1)
    recipe = write(tmp_path, f"127.0.0.1:{free}", f"http://127.0.0.1:{free}", f"127.0.0.1:{free}")
    done = subprocess.run(
        [sys.executable, "-c", BARE, "doctor", str(recipe), "--json"],
        **ASKED,
    )
    found = json.loads(done.stdout)
    (servers,) = [one for one in found if one["subject"] == "servers"]
    assert servers["sentence"] == "not examined: the package aiohttp is missing"
    assert servers["fix"] == "pip install 'toolwright[console]'"
    assert "Traceback" not in done.stderr


ASKED: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "timeout": 90}


def doctor(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "console.cli", "doctor", *words], **ASKED)


def write(folder: Path, engine: str, sampler: str, tools: str) -> Path:
    """A recipe without a policy, at these addresses."""
    (folder / "q.jsonl").write_text('{"prompt": "1?", "answer": "1"}\n', encoding="utf-8")
    tables = {
        "run": {
            **{"name": "r", "folder": "run", "steps": 1, "groups_per_step": 1, "group_size": 2},
            "engine": engine,
        },
        "policy": {"model": "policy"},
        "task": {"source": "q.jsonl", "reward": "./r.py:score"},
        "sampler": {"endpoints": [sampler]},
        "tools": {"shop": {"service": tools}},
    }
    file = folder / "recipe.toml"
    file.write_text(to_toml(tables), encoding="utf-8")
    return file


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>a wiki</html>")

    def log_message(self, *_words: Any) -> None:
        """Nothing on standard error."""


@contextmanager
def stranger() -> Iterator[int]:
    """A server of pages; yields its port."""
    server = HTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
