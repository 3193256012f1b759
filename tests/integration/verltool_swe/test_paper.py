"""paper.toml from rows of the published layouts to a step and an evaluation, in containers.

The policy is scripted, the images have the sets' layout, and the rows are written for this test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tasks.cli import app
from tests.support.containers.podman import Podman
from tests.support.containers.published import conda_tree, r2e_tree
from tests.support.repository import FIX
from tests.support.small_pytest import copy_pytest
from tests.support.swe_rows import r2e_row, swe_bench_row

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0,
        reason="podman of an ordinary user bounds no memory without delegated control groups",
    ),
]

FOLDER = Path(__file__).resolve().parents[3] / "recipes/verltool/swe"
SECONDS = 400
AGENT = f"""
from toolwright.model.tiny_policy import END_OF_TURN_ID
from ..protocol import written_call
from .policy import tokenizer

OLD, NEW = {FIX!r}
EDIT = {{"command": "str_replace", "path": "bill.py", "old_str": OLD, "new_str": NEW}}
TEXTS = (written_call("file_editor", EDIT), written_call("submit", {{}}))
idle = True


def reply(request):
    # The first trajectory submits what it found, and all others fix it.
    global idle
    text = TEXTS[min(request.turn + idle, 1)]
    idle = False
    return [*tokenizer().encode(text).ids, END_OF_TURN_ID]
"""
SMOKE = """
extends = ["paper.toml"]

[run]
steps = 1
groups_per_step = 1
group_size = 2

[policy]
model = "run/policy"

[sampler]
stream_interval = 64

[engine]
max_concurrent = 2

[engine.evaluation]
every = 1
max_concurrent = 2

[[engine.evaluation.suites]]
name = "SWE-Verified"
source = "data/swe_bench_verified.jsonl"
n = 3
when = "last"

[[console.services]]
name = "sampler"
run = [
    "bench", "scripted-sampler", "--script", "world/fixes.py:reply", "--port", "{port}",
    "--tokens-per-chunk", "64",
]
ready = "http://127.0.0.1:0/health"

[[console.prepare]]
name = "policy"
run = [
    "python", "-m", "toolwright.script", "world/policy.py", "--output", "{makes}",
    "--seed", "{seed}",
]
makes = "run/policy"
"""


def tasks(*words: object) -> None:
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == 0, found.stderr


def rows(path: Path, *every: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in every), encoding="utf-8")
    return path


def test_a_step_and_an_evaluation_on_published_rows(tmp_path: Path) -> None:
    copy_pytest(tmp_path / "packages")
    podman = Podman(tmp_path)
    try:
        podman.add_image("localhost/r2e", r2e_tree(tmp_path / "r2e", tmp_path / "packages"))
        conda, _ = conda_tree(tmp_path / "conda", tmp_path / "packages", "testbed")
        podman.add_image("localhost/verified", conda)
        swe = tmp_path / "swe"
        shutil.copytree(FOLDER, swe, ignore=shutil.ignore_patterns("run", "__pycache__"))
        r2e = rows(tmp_path / "raw/r2e.jsonl", *(r2e_row(commit_hash=f"3f2{n}") for n in "abc"))
        ids = [f"pallets__flask-{n}" for n in range(3)]
        verified = rows(
            tmp_path / "raw2/verified.jsonl", *(swe_bench_row(instance_id=one) for one in ids)
        )
        output = ("--output", swe / "verifications")
        tasks("convert", "r2e_gym_lite", r2e, swe / "data/train.jsonl")
        tasks("verifications", "r2e", r2e, *output, "--image", "localhost/r2e")
        tasks("convert", "swe_bench_verified", verified, swe / "data/swe_bench_verified.jsonl")
        tasks("verifications", "swebench", verified, *output, "--image", "localhost/verified")
        (swe / "world/fixes.py").write_text(AGENT, encoding="utf-8")
        (swe / "smoke.toml").write_text(SMOKE, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "console.cli", "run", str(swe / "smoke.toml")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS,
            env={**os.environ, **podman.environment},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:]
        (step,) = (swe / "run/learner.jsonl").read_text(encoding="utf-8").splitlines()
        assert json.loads(step)["reward"] == 0.5
        (found,) = (swe / "run/evaluations").glob("SWE-Verified@*.jsonl")
        judged = [json.loads(line) for line in found.read_text(encoding="utf-8").splitlines()]
        assert [one["reward"] for one in judged] == [1.0] * 3
    finally:
        podman.end()
