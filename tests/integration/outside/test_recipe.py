"""Two steps of recipes/outside: by openai-agents unchanged, and by our own loop.

The scripted sampler refuses any prompt but one, so both loops show the policy the same ids.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.net import free_port
from tests.support.recipes import inline
from toolwright.imports import load_file

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
RECIPE = ROOT / "recipes/outside"
SCRIPT = f"{Path(__file__).with_name('script.py')}:reply"
SAMPLER = {
    "name": "sampler",
    "run": ["bench", "scripted-sampler", "--script", SCRIPT, "--port", "{port}"],
    "ready": "http://127.0.0.1:0/health",
}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside") / "policy"
    load_file(RECIPE / "policy.py").write(folder, seed=1)
    return folder


@pytest.fixture
def openai_agents() -> Path:
    python = ROOT / ".venv-agents/bin/python"
    if not (ROOT / ".venv-agents/ready").exists():
        pytest.skip("there is no .venv-agents: `make test-agents` makes it")
    return python


def two_steps(file: str, policy: Path, run: Path, **changes: Any) -> list[Mapping[str, Any]]:
    """The learner's figures of a run of two steps, of two questions asked twice. changes: settings
    by name; None: as the recipe has it."""
    values = {
        "policy.model": str(policy),
        "run.groups_per_step": 2,
        "run.group_size": 2,
        "engine.evaluation.suites": [],
        "console.prepare": [],
        "console.services": [SAMPLER],
        "console.sampler.way": "none",
        "console.track": [],
        **changes,
    }
    settings = [(key, value) for key, value in values.items() if value is not None]
    words = [part for key, value in settings for part in ("--set", f"{key}={inline(value)}")]
    command = [sys.executable, "-m", "console.cli", "run", str(RECIPE / file), "--steps", "2"]
    done = subprocess.run(
        [*command, "--folder", str(run), *words],
        env={**os.environ, "OUTSIDE_POLICY": str(policy)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode in (0, 4), done.stdout + done.stderr  # 4: nothing was left to learn
    lines = (run / "learner.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def check(steps: list[Mapping[str, Any]]) -> None:
    """One call and an answer a trajectory, in one sequence; every answer is right."""
    assert [one["step"] for one in steps] == [1, 2]
    for one in steps:
        figures = ("trajectories", "sequences", "turns", "calls", "reward")
        assert [one[name] for name in figures] == [4, 1.0, 2.0, 1.0, 1.0]


def test_the_agent_plays(openai_agents: Path, policy: Path, tmp_path: Path) -> None:
    command = [str(openai_agents), "-E", "agent.py", "calculator.py"]
    # An account that a jail's agents run as need not be able to read this interpreter.
    agent = {"task.agent.command": command, "task.agent.sandbox": "none"}
    check(two_steps("recipe.toml", policy, tmp_path / "run", **agent))


def test_the_ingress_waits_for_the_policy_of_the_warm_up(
    openai_agents: Path, policy: Path, tmp_path: Path
) -> None:
    command = [str(openai_agents), "-E", "agent.py", "calculator.py"]
    agent = {"task.agent.command": command, "task.agent.sandbox": "none"}
    warm_up = {"policy.model": None, "console.prepare": None, "sft.steps": 2}
    check(two_steps("recipe.toml", policy, tmp_path / "run", **agent, **warm_up))


def test_the_driver_plays_and_ends_with_the_run(
    openai_agents: Path, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLWRIGHT_TOKEN", "a-token-of-the-test")
    port = free_port()
    words = [str(openai_agents), "-E", str(RECIPE / "drive.py"), f"http://127.0.0.1:{port}"]
    changes = {"ingress.address": f"127.0.0.1:{port}"}
    with ThreadPoolExecutor() as threads:
        run = threads.submit(two_steps, "drive.toml", policy, tmp_path / "run", **changes)
        while not answers(port) and not run.done():
            time.sleep(0.1)
        drive = subprocess.run([*words, "--at-once", "4"], capture_output=True, timeout=400)
        check(run.result())
    assert (drive.returncode, drive.stderr.decode()) == (0, "")


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return not probe.connect_ex(("127.0.0.1", port))


def test_our_own_loop_plays(policy: Path, tmp_path: Path) -> None:
    check(two_steps("own.toml", policy, tmp_path / "run"))
