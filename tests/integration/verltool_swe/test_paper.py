"""paper.toml from rows of the published layouts to a step and an evaluation, in containers.

The policy is scripted, the images have the sets' layout, and the rows are written for this test."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.containers.podman import Podman
from tests.support.containers.published import conda_tree, r2e_tree
from tests.support.recipes import part_of
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


def rows(path: Path, *every: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in every), encoding="utf-8")


def commands() -> str:
    """The README's, without its first block: the test exports its own."""
    blocks = re.findall(
        r"^```sh\n(.*?)^```", (FOLDER / "README.md").read_text("utf-8"), re.M | re.S
    )
    assert blocks[0].startswith("export RAW=")
    return "set -e\n" + "".join(blocks[1:])


def test_a_step_and_an_evaluation_by_the_readmes_commands(tmp_path: Path) -> None:
    copy_pytest(tmp_path / "packages")
    ids = [f"pallets__flask-{n}" for n in range(3)]
    raw = tmp_path / "raw"
    rows(raw / "R2E-Gym-Lite/data/a.jsonl", *(r2e_row(commit_hash=f"3f2{n}") for n in "abc"))
    rows(raw / "SWE-bench_Verified/data/a.jsonl", *(swe_bench_row(instance_id=id) for id in ids))
    part_of(FOLDER)("world/policy.write")(tmp_path / "policy", seed=1)
    podman = Podman(tmp_path)
    environment = {
        **os.environ,
        **podman.environment,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RAW": str(raw),
        "MODEL": str(tmp_path / "policy"),
        "EXTRA": "--set engine.evaluation.suites="
        '[{name="SWE-Verified",source="data/swe_bench_verified.jsonl",n=3}]',
    }

    def ran(*words: str) -> None:
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, timeout=SECONDS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:]

    try:
        podman.add_image(
            "docker.io/namanjain12/bill_final:3f2a",
            r2e_tree(tmp_path / "r2e", tmp_path / "packages"),
        )
        conda, _ = conda_tree(tmp_path / "conda", tmp_path / "packages", "testbed")
        for id in ids:
            name = id.replace("__", "_1776_")
            podman.add_image(f"docker.io/swebench/sweb.eval.x86_64.{name}:latest", conda)
        ran("bash", "-c", commands())
        swe = tmp_path / "swe"
        (swe / "world/fixes.py").write_text(AGENT, encoding="utf-8")
        (swe / "smoke.toml").write_text(SMOKE, encoding="utf-8")
        ran("toolwright", "run", str(swe / "smoke.toml"))
        (step,) = (swe / "run/learner.jsonl").read_text(encoding="utf-8").splitlines()
        assert json.loads(step)["reward"] == 0.5
        (found,) = (swe / "run/evaluations").glob("SWE-Verified@*.jsonl")
        judged = [json.loads(line) for line in found.read_text(encoding="utf-8").splitlines()]
        assert [one["reward"] for one in judged] == [1.0] * 3
    finally:
        podman.end()
