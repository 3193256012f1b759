"""Environments of the published package verifiers, played by `agents serve` beside a real engine.

`make test-verifiers` installs it: constraints/verifiers.txt.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.scripted import ScriptRequest
from engine.core.text.codec import HuggingFaceCodec
from tests.integration.engine.conftest import MakeWorld
from tests.support.agents import END, written_call
from tests.support.dialogue import by_turn
from tests.support.hosted_agents import hosted
from tests.support.policy import QWEN_TEMPLATE, write_policy
from toolwright.jail.view import ACCOUNTS, account_of, folder_fault, own_account
from toolwright.types import Author

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[3]
PLAY = ROOT / "agents/verifiers/play.py"
SETS = ROOT / "tests/support/verifiers_sets"
TURN = "<|im_start|>assistant"
SECONDS = 500
"""Longest time for a test's rollouts: each starts Python three times."""
LIMITS = {"limits": {"seconds": 480.0}}


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of the environment; the test is skipped without it."""
    folder = ROOT / ".venv-verifiers"
    if not (folder / "ready").exists():
        pytest.skip("there is no .venv-verifiers: `make test-verifiers` makes it")
    return folder / "bin/python"


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen") / "p"
    return write_policy(folder, template=QWEN_TEMPLATE, special=("<think>", "</think>"))


async def played(python: Path, folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of play.py."""
    process = await asyncio.create_subprocess_exec(
        python, PLAY, *words, cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(SETS)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(SECONDS):
        said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


def agent(python: Path, **more: Any) -> dict[str, Any]:
    return {
        "command": [str(python), "play.py", "env.toml"],
        "environment": {"PYTHONPATH": str(SETS)},
        "reward_from": "agent",
        "retry_exits": [75],
        "at_once": 10,
        **more,
    }


async def written(python: Path, folder: Path, settings: str) -> None:
    """env.toml, play.py and tasks.jsonl in the folder."""
    (folder / "env.toml").write_text(settings, encoding="utf-8")
    shutil.copy(PLAY, folder)
    code, said = await played(python, folder, "env.toml", "tasks.jsonl")
    assert code == 0, said


def jailed_packages(python: Path) -> Path:
    """The folder of the environment's packages, for the system's interpreter: the account of a jail
    may not reach another. The test is skipped if a jail cannot use them."""
    (packages,) = (python.parents[1] / "lib").glob("python3.*/site-packages")
    said = subprocess.check_output(["/usr/bin/python3", "-V"], text=True)
    if not said.startswith(f"Python {packages.parent.name.removeprefix('python')}."):
        pytest.skip(f"/usr/bin/python3 is {said.strip()}, and the packages are for another one")
    account = own_account() if os.geteuid() else account_of(ACCOUNTS)
    assert account is not None
    if fault := folder_fault(str(packages), account):
        pytest.skip(fault)
    return packages


async def leased(run: Any, groups: int) -> list[Any]:
    async with asyncio.timeout(SECONDS):
        while True:
            found = await run.learner.lease(count=groups, wait=10.0)
            if len(found) == groups:
                return [member for group in found for member in group.members]


async def test_ten_rollouts_are_recorded_and_rewarded(
    world: MakeWorld, qwen: Path, python: Path, tmp_path: Path
) -> None:
    codec = HuggingFaceCodec(qwen)

    def script(request: ScriptRequest) -> Any:
        """Right for even numbers, wrong for odd ones."""
        found = re.search(r"What is (\d+) \+", codec.decode(request.input_ids))
        assert found is not None
        number = int(found[1])
        reply = f"{2 * number}" if number % 2 == 0 else "I do not know it."
        return by_turn(codec, [reply + END], mark="<none>")(request)

    await written(python, tmp_path, '[taskset]\nid = "sums"\nsize = 5\n')
    rows = [
        json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text("utf-8").split("\n")[:-1]
    ]
    assert [row["prompt"] for row in rows] == [f"What is {n} + {n}?" for n in range(5)]
    assert "total" not in json.dumps(rows)
    here = await world(
        script=script, policy=qwen,
        run={"steps": 1, "groups_per_step": 5, "group_size": 2},
        task={"source": "tasks.jsonl", **LIMITS},
    )  # fmt: skip
    async with hosted(here, agent(python), "") as (run, _):
        members = await leased(run, 5)
    assert len(members) == 10
    records = []
    for member in members:
        number = int(member.task.metadata["idx"])
        right = number % 2 == 0
        assert member.reward == (1.5 if right else 0.0)
        assert member.metadata["answer"] == (f"{2 * number}" if right else "I do not know it.")
        (sequence,) = member.sequences
        records.append([id for one in sequence.segments for id in one.token_ids])
        assert [one.author for one in sequence.segments].count(Author.MODEL) == 1
    sent = [list(one.input_ids) for one in here.sampler.requests]
    assert len(sent) == 10
    assert all(any(record[: len(ids)] == ids for record in records) for ids in sent)


async def test_a_tool_of_the_environment_in_a_jail(
    world: MakeWorld, qwen: Path, python: Path, tmp_path: Path
) -> None:
    replies = [written_call("adder_add", a="2", b="2") + END, "4" + END]
    script = by_turn(HuggingFaceCodec(qwen), [replies[0], *replies], mark=TURN)
    settings = '[taskset]\nid = "sums"\nsize = 3\n[taskset.task]\ntool = true\n'
    await written(python, tmp_path, settings)
    lines = (tmp_path / "tasks.jsonl").read_text("utf-8").splitlines()
    (tmp_path / "tasks.jsonl").write_text(lines[2] + "\n", encoding="utf-8")
    here = await world(
        script=script, policy=qwen,
        run={"steps": 1, "groups_per_step": 1, "group_size": 1},
        task={"source": "tasks.jsonl", **LIMITS},
    )  # fmt: skip
    packages = jailed_packages(python)
    jailed = agent(
        python, sandbox="bwrap", folders=[str(SETS), str(packages)],
        command=["/usr/bin/python3", "play.py", "env.toml"],
        environment={"PYTHONPATH": f"{SETS}:{packages}"},
    )  # fmt: skip
    async with hosted(here, jailed, "") as (run, _):
        (member,) = await leased(run, 1)
    (sequence,) = member.sequences
    assert [one.author for one in sequence.segments].count(Author.MODEL) == 2
    assert (member.reward, member.metadata["answer"]) == (1.5, "4")
    parts = {one.name: one.value for one in member.reward_parts}
    assert (parts["right"], parts["short"]) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("[taskset]", "[taskset] has no id"),
        ('[taskset]\nid = "sums"\n[agent.harness]\nid = "bash"', "lets the policy run programs"),
    ],
)
async def test_what_cannot_be_played_safely_is_refused(
    python: Path, tmp_path: Path, settings: str, says: str
) -> None:
    (tmp_path / "env.toml").write_text(settings, encoding="utf-8")
    code, said = await played(python, tmp_path, "env.toml", "tasks.jsonl")
    assert code == 1
    assert says in said
