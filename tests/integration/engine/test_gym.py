"""Our own loop plays a real environment by the page's recipe: prompts, turns, and the return."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.integration.engine.conftest import MakeWorld
from tests.integration.toolsvc.conftest import running_service
from tests.support.dialogue import by_turn
from tests.support.docs import example
from tests.support.recipes import PAIR
from toolwright.types import StopReason

pytest.importorskip("gymnasium", reason="gymnasium is not installed: `make setup` installs it")
pytestmark = pytest.mark.quick

PAGE = "tools/sources/gym.md"
SHOWN = tomllib.loads(example(PAGE, "# episodes in a recipe", "toml"))
MOVES = ("down", "down", "right", "right", "down", "right")
TOOLSVC = [sys.executable, "-c", "from toolsvc.cli import main; main()"]


async def test_a_group_plays_frozen_lake_to_its_goal(world: MakeWorld, tmp_path: Path) -> None:
    words = SHOWN["tools"]["act"]["serve"]
    small = ("--ready", "2", "--shards", "1")
    with running_service(tmp_path / "service.log", *words, *small) as service:
        file = tmp_path / SHOWN["task"]["source"]
        made = ("tasks", service.address, "--count", "2", "--output", str(file))
        await asyncio.to_thread(subprocess.run, [*TOOLSVC, *made], check=True, timeout=120)
        (tmp_path / "my_reward.py").write_text(example(PAGE, "# my_reward.py"), encoding="utf-8")
        limits = {"turns": 8, "action": 64, "response": 4096, "model": 16384}
        here = await world(run=PAIR, task={**SHOWN["task"], "limits": limits})
        here.tables["tools"] = {"act": {"service": service.address}}
        replies = [f"<act> {move} </act>" for move in MOVES]
        here.sampler._script = by_turn(here.codec, replies)
        async with here.engine() as run:
            (group,) = await run.learner.lease(run.version)
    for member in group.members:
        assert member.task.prompt.endswith("[S]FFF\nFHFH\nFFFH\nHFFG")
        rewards = [call.outcome.reward for call in member.calls]
        assert rewards == [0, 0, 0, 0, 0, 1]
        assert member.calls[0].outcome.observation == "  (Down)\nSFFF\n[F]HFH\nFFFH\nHFFG"
        assert member.reward == 1.0
        assert member.stop_reason is StopReason.TOOL_SIGNALED_DONE
