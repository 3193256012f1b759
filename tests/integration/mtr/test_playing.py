"""AutoAgent through real processes: engine, `toolsvc serve simulated:`, the player; a scripted
policy."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from engine.config import EngineTable
from engine.errors import StartupError
from engine.offline.check import command as checking
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.codecs import END
from tests.support.dialogue import in_turn
from tests.support.net import free_port
from tests.support.policy import write_policy
from toolwright.imports import load_file
from toolwright.recipe import load_recipe
from toolwright.types import StopReason, Trajectory

pytestmark = pytest.mark.slow

RECIPE = Path(__file__).parents[3] / "recipes" / "mtr"
LIMITS = {"turns": 6, "action": 512, "observation": 512, "response": 6000, "model": 8000}


@asynccontextmanager
async def player() -> AsyncIterator[str]:
    """The URL of a player process, which ends by itself when it is told to."""
    address = f"127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "toolwright.script",
        str(RECIPE / "world/player.py"),
        "--listen",
        address,
    )
    try:
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            while not await answers(session, f"http://{address}/health"):
                assert process.returncode is None
                await asyncio.sleep(0.1)
        yield f"http://{address}/v1"
    finally:
        process.terminate()
        await process.wait()
    assert process.returncode == 0


async def answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as answer:
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False


def asked() -> tuple[Any, str, dict[str, str]]:
    """An easy question whose tools want an edition, the tool that answers it, and its arguments."""
    roles = load_file(RECIPE / "world/roles.py")
    task = load_file(RECIPE / "world/task.py")
    for one in islice(task.easy(1), 200):
        for tool in roles.tool_set(one.metadata["question"]):
            wanted = tool["function"]["parameters"]["properties"]
            if "edition" in wanted and "birth" in tool["function"]["description"]:
                name = next(iter(wanted))
                question = one.metadata["question"]
                about = question.removeprefix("Where was ").removesuffix(" born?")
                if about != question:
                    arguments = {name: about, "edition": wanted["edition"]["enum"][0]}
                    return one, tool["function"]["name"], arguments
    raise AssertionError("no such question")


def call(tool: str, arguments: dict[str, str]) -> str:
    body = json.dumps({"name": tool, "arguments": arguments})
    return f"<think>so</think><tool_call>{body}</tool_call>"


async def rolled_out(
    here: World, url: str, task: Any, ways: Sequence[Sequence[str]]
) -> list[Trajectory]:
    """One group, a member a way, in the order of the ways."""
    question = task.metadata["question"]
    here.sampler._script = in_turn(here.codec, ways, lambda text: text.index(question))
    row = {"question": question, "answers": list(task.answers), "metadata": dict(task.metadata)}
    (here.folder / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    options = ("--set", f"simulated.endpoint={url}", "--set", "simulated.model=player")
    here.tables["tools"] = {"played": {"serve": ["simulated:", *options]}}
    here.tables["task"].pop("protocol_options", None)
    table = {
        "source": "rows.jsonl",
        "protocol": str(RECIPE / "protocol.py:AutoAgent"),
        "protocol_options": {"prompt": "{tools}"},
        "reward": str(RECIPE / "score.py:MtrReward"),
        "limits": LIMITS,
        "tools": ["played"],
    }
    one = {"steps": 1, "groups_per_step": 1, "group_size": len(ways)}
    changes = {"run": one, "engine": {"max_concurrent": 1}, "task": table}
    async with here.engine(**changes) as run:
        (group,) = await run.learner.lease(await run.learner.version(), count=1, wait=60)
    wrote = [[text for author, text in here.texts(m) if author == "model"] for m in group.members]
    return [group.members[wrote.index(list(way))] for way in ways]


def reward(trajectory: Trajectory) -> dict[str, float]:
    return {part.name: round(part.value, 6) for part in trajectory.reward_parts}


def criteria(here: World, trajectory: Trajectory) -> list[bool]:
    """What the filter's criteria say, as `engine sample` would show them the trajectory."""
    texts = [text for author, text in here.texts(trajectory) if author == "model"]
    shown = replace(trajectory, metadata={**trajectory.metadata, "texts": texts})
    named = load_file(RECIPE / "filter.py")
    return [
        named.right(shown),
        named.no_errors(shown),
        named.errors_recovered(shown),
        named.two_to_twelve_calls(shown),
    ]


async def test_errors_are_read_and_mended_and_three_in_a_row_end_it(world: MakeWorld) -> None:
    here = await world()
    task, tool, arguments = asked()
    (gold, *_) = task.answers
    other = {**arguments, "edition": "tenth"}
    last = f"<think>the answer is {gold}.</think><answer>{gold}</answer>"
    ways = [
        [call(tool, arguments), call(tool, arguments), last],
        [call(tool, other), call(tool, arguments), last],
        [call("nothing", {}), "<tool_call>{</tool_call>", call(tool, other), last],
        [f"I do not know.{END}"],
    ]
    async with player() as url:
        right, mended, ended, silent = await rolled_out(here, url, task, ways)

    texts = [text for _, text in here.texts(right)]
    assert f"{tool}(" in texts[0] and "edition: string" in texts[0]
    assert f'"{gold}"' in texts[2]
    assert right.stop_reason is StopReason.ANSWERED
    assert reward(right) == {"answer": 1.0, "repetition": -0.1}
    assert criteria(here, right) == [True, True, True, True]

    texts = [text for _, text in here.texts(mended)]
    assert '"type": "validation_error", "stage": "pre"' in texts[2]
    assert reward(mended) == {"answer": 1.0, "repetition": 0.0}
    assert criteria(here, mended) == [True, False, True, True]

    texts = [text for _, text in here.texts(ended)]
    assert '{"status": "error", "error": {"type": "unknown_tool", "tool": "nothing"' in texts[2]
    assert '{"status": "error", "error": {"type": "parse_error"' in texts[4]
    assert ended.stop_reason is StopReason.TOOL_EXCEPTION
    assert len(ended.calls) == 3
    assert reward(ended) == {"answer": 0.0, "repetition": 0.0}
    assert criteria(here, ended) == [False, False, False, True]

    assert silent.stop_reason is StopReason.NO_ACTION_IN_OUTPUT
    assert criteria(here, silent) == [False, True, True, False]


async def test_with_the_tools_off_no_model_is_asked_for_any(world: MakeWorld) -> None:
    """Nobody is at the model's address."""
    task, tool, arguments = asked()
    off = replace(task, metadata={**task.metadata, "tools": "off"})
    right = f"<think>so</think><answer>{task.answers[0]}</answer>"
    ways = [[right], [call(tool, arguments), right]]
    here = await world()
    async with asyncio.timeout(60):
        found = await rolled_out(here, f"http://127.0.0.1:{free_port()}/v1", off, ways)
    assert [one.stop_reason for one in found] == [StopReason.ANSWERED] * 2
    (refused,) = found[1].calls
    assert '"unknown_tool"' in refused.outcome.invalid_reason


async def checked(*served: str) -> tuple[int, str]:
    """`engine check --connect` of the recipe with these tools: exit code, and what it says."""
    command = (sys.executable, "-m", "engine.cli", "check", str(RECIPE / "recipe.toml"))
    process = await asyncio.create_subprocess_exec(
        *command, "--connect", "--set", f"tools.played.serve={json.dumps(served)}",
        "--set", "tools.played.options={}",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def test_a_check_has_the_first_questions_tools_made() -> None:
    first = next(load_file(RECIPE / "world/task.py").training(1))
    made = load_file(RECIPE / "world/roles.py").tool_set(first.messages[-1]["content"])
    async with player() as url:
        options = ("--set", f"simulated.endpoint={url}", "--set", "simulated.model=player")
        status, said = await checked("simulated:", *options)
        assert status == 0, said
        names = ", ".join(tool["function"]["name"] for tool in made)
        assert f"first session: {names}" in said
        status, said = await checked("simulated:", *options, "--set", "simulated.budget_requests=0")
    assert status == 1
    (sentence,) = [line for line in said.splitlines() if line.startswith("engine: ")]
    assert "no session opens for the first task" in sentence
    assert "budget" in sentence


def test_a_check_does_not_wait_for_a_model_that_is_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As long as a run would."""
    monkeypatch.setattr(checking, "PATIENCE_S", 0.3)
    write_policy(tmp_path / "policy")
    nobody = f"simulated.endpoint=http://127.0.0.1:{free_port()}/v1"
    served = ["simulated:", *("--set", nobody), *("--set", "simulated.model=m")]
    served += ["--set", "simulated.retries=0"]
    recipe = load_recipe(
        RECIPE / "recipe.toml",
        [
            *(f"tools.played.serve={json.dumps(served)}", "tools.played.patience_s=60"),
            "tools.played.options={}",
            *(f"policy.model={tmp_path}/policy", f"run.folder={tmp_path}/run"),
        ],
    )
    table = recipe.table("engine", EngineTable)
    began = time.monotonic()
    with pytest.raises(StartupError, match=r"no session opens.*All connection attempts failed"):
        list(checking.check(recipe, table, connect=True))
    assert time.monotonic() - began < 50
