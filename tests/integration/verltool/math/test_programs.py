"""Programs in fenced blocks through real processes: engine, `toolsvc serve python`, its sandbox; a
scripted policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.engine.conftest import MakeWorld
from tests.support.codecs import END
from tests.support.dialogue import in_turn
from toolwright.types import StopReason, ToolErrorKind, Trajectory

pytestmark = pytest.mark.quick

RECIPE = Path(__file__).parents[4] / "recipes/verltool/math"
QUESTION = "412 crates hold 37 cups each. The customs keep 86. How many go on?"
SMALL = ("--ready", "1", "--shards", "1", "--memory-mib", "192")
PROGRAM = "First:\n```python\nx = 412*37\nprint(x-86)\n```\n```output"
WAYS = (
    (PROGRAM, rf"So \boxed{{15158}}{END}"),
    (rf"\boxed{{15158}}{END}",),
    ("```python\nprint(1/0)\n```\n```output", rf"\boxed{{0}}{END}"),
    ("so ```output", rf"\boxed{{15158}}{END}"),
    (PROGRAM, PROGRAM),
)


def reward(trajectory: Trajectory) -> dict[str, float]:
    return {part.name: part.value for part in trajectory.reward_parts}


async def test_a_program_runs_and_its_output_is_boxed(world: MakeWorld) -> None:
    here = await world()
    here.sampler._script = in_turn(here.codec, WAYS, lambda text: text.index(QUESTION))
    row = {"question": QUESTION, "answers": ["15158"]}
    (here.folder / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    words = ["python", "--set", "python.format=fenced", *SMALL]
    here.tables["tools"] = {"python": {"serve": words}}
    task = {
        "source": "rows.jsonl",
        "protocol": str(RECIPE / "protocol.py:Programs"),
        "reward": str(RECIPE / "score.py:MathReward"),
        "limits": {"turns": 1, "response": 2000, "model": 4000},
        "tools": ["python"],
    }
    one = {"steps": 1, "groups_per_step": 1, "group_size": len(WAYS)}
    async with here.engine(run=one, engine={"max_concurrent": 1}, task=task) as run:
        (group,) = await run.learner.lease(await run.learner.version())

    said = {
        tuple(text for author, text in here.texts(member) if author == "model"): member
        for member in group.members
    }
    solved, guessed, raised, empty, again = (said[way] for way in WAYS)
    texts = [text for _, text in here.texts(solved)]
    assert QUESTION in texts[0] and "```output" in texts[0]
    assert "".join(texts[1:]) == f"{PROGRAM}\n15158\n```\n{WAYS[0][1]}"
    assert reward(solved) == {"accuracy": 1.0, "tool": 0.0}

    assert not guessed.calls
    assert reward(guessed) == {"accuracy": 1.0, "tool": -0.25}

    assert raised.calls[0].outcome.error is ToolErrorKind.EXCEPTION
    assert "ZeroDivisionError" in raised.calls[0].outcome.observation
    assert reward(raised) == {"accuracy": -1.0, "tool": 0.0}

    assert empty.calls[0].outcome.error is ToolErrorKind.INVALID_ACTION
    assert "no block of code" in "".join(text for _, text in here.texts(empty))
    assert reward(empty) == {"accuracy": 1.0, "tool": -0.25}

    assert again.stop_reason is StopReason.MAX_TURNS
    assert len(again.calls) == 1, "table 14's one program"
    assert reward(again) == {"accuracy": -1.0, "tool": 0.0}
