"""`toolwright ablate` as a user has it: real runs, stopped, gone on with, and one that fails."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from console.record.course import read_course
from tests.integration.console.test_run import ended, said, started, steps, wait
from tests.support.own_run import write_own_run, write_policy
from tests.support.stills import data_of

pytestmark = pytest.mark.slow

STEPS = 8


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy") / "tiny")


def recipe_of(folder: Path, policy: Path) -> Path:
    """With a warm-up of one step."""
    answer = {"role": "assistant", "content": "<answer>123</answer>"}
    row = {"messages": [{"role": "user", "content": "1?"}, answer]}
    (folder / "rows.jsonl").write_text(f"{json.dumps(row)}\n" * 2, encoding="utf-8")
    suite: dict[str, Any] = {"source": "task.py:questions", "n": 4, "when": "ends"}
    rows = "run/rows.trajectories"
    return write_own_run(
        folder,
        policy,
        run={"steps": STEPS},
        policy={"model": "run/warm"},
        render={"model": policy, "conversations": "rows.jsonl", "output": rows},
        sft={"model": policy, "data": rows, "output": "run/warm", "steps": 1, "batch_size": 2},
        engine={"evaluation": {"suites": [{"name": "heldout", **suite}]}},
        console={
            "ablations": [
                {"name": "slow", "set": ["learner.optimizer.lr=1e-6"]},
                {"name": "imitation", "set": ["run.steps=0"]},
                {"name": "broken", "set": [
                    "console.prepare=[{name='numbers', run=['false'], makes='run/n.txt'}]",
                ]},
            ],
        },
    )  # fmt: skip


def test_a_ladder_is_stopped_gone_on_with_and_tells_of_a_run_that_failed(
    tmp_path: Path, policy: Path
) -> None:
    recipe, home = recipe_of(tmp_path, policy), tmp_path / "ladder"
    command = ("ablate", str(recipe), "--seeds", "1", "--folder", str(home))
    base, slow, broken = (home / name / "seed-1" for name in ("base", "slow", "broken"))
    with started(*command) as process:
        wait(process, lambda: steps(base) >= 1, "a step of the base")
        code, output = said(*command)
        assert code == 5 and "another `toolwright ablate` works in" in output
        wait(process, lambda: steps(slow) >= 1, "a step of the variation")
        process.send_signal(signal.SIGINT)
        code, output = ended(process)
    assert code == 130, output
    assert (
        json.loads((home / "ablate.json").read_text(encoding="utf-8"))["rows"][0]["runs"][0]["word"]
        == "done"
    )
    assert (base / "warm/config.json").is_file() and not (slow / "warm").exists()
    made = {process.name for process in read_course(slow).processes}
    assert made >= {"learner", "engine"} and not made & {"sft", "render"}
    assert not broken.exists()

    code, output = said(*command)
    assert code == 1, output
    assert "4 runs of 8 steps in " in output and ", 1 of them done" in output
    assert len(read_course(base).starts) == 1, "what is done is not run again"
    assert len(read_course(slow).starts) == 2
    assert steps(base) == steps(slow) == STEPS
    assert "broken, seed 1: failed (status 1)" in output
    lines = output.splitlines()
    assert lines[-1] == str(home / "ablate.json")
    assert any(line.startswith("  less base") and "one seed" in line for line in lines)
    rows = {
        row["name"]: row
        for row in json.loads((home / "ablate.json").read_text(encoding="utf-8"))["rows"]
    }
    assert rows["slow"]["shares_policy"] and not rows["broken"]["shares_policy"]
    assert [rows[name]["runs"][0]["word"] for name in ("base", "slow", "imitation", "broken")] == [
        *("done", "done", "done", "failed")
    ]
    alone = rows["imitation"]
    assert alone["shares_policy"] and set(alone["runs"][0]["values"]) == {"heldout"}
    assert steps(home / "imitation/seed-1") == 0
    assert set(rows["slow"]["runs"][0]["values"]) >= {"heldout", "reward", "area"}
    shown = data_of((home / "ablate.html").read_text(encoding="utf-8"))["data"]["rows"]
    assert "one seed" in str(shown[1]["shown_differences"])


def test_what_the_engine_refuses_is_said_before_anything_is_run(
    tmp_path: Path, policy: Path
) -> None:
    """A reward's options are nobody's but the reward's."""
    recipe = recipe_of(tmp_path, policy)
    options = "console.ablations=[{name='odd', set=['task.reward_options={x=1}']}]"
    code, output = said("ablate", str(recipe), "--set", options)
    assert code == 2
    assert "toolwright: ablation 'odd': task.reward_options" in output.splitlines()[-1]
    assert not list((tmp_path / "run-ablate").glob("*/seed-*"))
