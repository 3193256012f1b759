"""SQL agents through real processes: engine, `toolsvc serve sql`; a scripted policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from tasks.judging.gold_rows import read_gold
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.codecs import END
from tests.support.dialogue import in_turn
from toolwright.imports import load_file
from toolwright.types import Author, StopReason, Task, Trajectory

pytestmark = pytest.mark.quick

RECIPE = Path(__file__).parents[3] / "recipes/verltool/sql"
LIMITS = {"turns": 3, "action": 512, "observation": 512, "response": 6000, "model": 8000}
SCHEMA = "CREATE TABLE author (...);"


def asked_for() -> Task:
    """A question that takes a look-up."""
    stream = load_file(RECIPE / "world/task.py").training(1)
    return next(one for one in islice(stream, 100) if one.metadata["database"] == "library")


async def rolled_out(here: World, asked: Task, ways: Sequence[Sequence[str]]) -> list[Trajectory]:
    """One group, a member a way, in the order of the ways."""
    question = asked.messages[0]["content"]
    begun = f"Question: {question}"
    here.sampler._script = in_turn(here.codec, ways, lambda text: text.rindex(begun))
    databases = here.folder / "databases"
    load_file(RECIPE / "world/databases.py").write(databases)
    row = {
        "question": question,
        "answers": list(asked.answers),
        "metadata": {**asked.metadata, "schema": SCHEMA},
    }
    (here.folder / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    serve = ["sql", "--set", f"sql.databases={databases}", "--set", "sql.solution_json=true"]
    here.tables["tools"] = {"sql": {"serve": serve, "run_limit_s": 5.0}}
    here.tables["task"].pop("protocol_options", None)
    task = {
        "source": "rows.jsonl",
        "protocol": str(RECIPE / "protocol.py:SqlAgent"),
        "protocol_options": {"queries": 2},
        "reward": str(RECIPE / "score.py:SqlReward"),
        "limits": LIMITS,
        "tools": ["sql"],
    }
    one = {"steps": 1, "groups_per_step": 1, "group_size": len(ways)}
    changes = {"run": one, "engine": {"max_concurrent": 1}, "task": task}
    async with here.engine(**changes) as run:
        (group,) = await run.learner.lease(await run.learner.version(), count=1, wait=60)
    first = [way[0] for way in ways]
    found = {first.index(written(here, one)): one for one in group.members}
    return [found[place] for place in range(len(ways))]


def written(here: World, trajectory: Trajectory) -> str:
    """What the policy wrote first."""
    return next(text for author, text in here.texts(trajectory) if author == "model")


def measured(trajectory: Trajectory) -> dict[str, float]:
    (event,) = [event for event in trajectory.events if event.kind == "measured"]
    return dict(event.data)


async def test_look_up_solution_limit_and_form(world: MakeWorld) -> None:
    here = await world()
    asked = asked_for()
    gold = read_gold(asked.answers).sql
    look = "<think>a</think><sql>SELECT name FROM author WHERE id = 1</sql>"
    solved = f"<think>b</think><solution>{gold}</solution>"
    ways = [
        [look, look.replace("= 1", "= 2"), solved],
        [look.replace("a<", "c<"), look, look],
        [f"<solution>{gold}</solution>"],
        ["<think>d</think><solution>SELECT 'wrong'</solution>"],
        [f"<think>e</think> I do not know.{END}"],
        ["<think>f</think><solution>SELECT nothing</solution>"],
    ]
    right, late, bare, wrong, silent, failing = await rolled_out(here, asked, ways)

    model, tool = Author.MODEL, Author.TOOL
    authors = [segment.author for segment in right.sequences[0].segments]
    assert authors == [Author.PROMPT, model, tool, model, tool, model, tool]
    assert right.stop_reason is StopReason.TOOL_SIGNALED_DONE
    assert right.reward == 1.0
    assert measured(right) == {"right": 1.0, "form": 1.0, "queries": 2.0}
    texts = [text for _, text in here.texts(right)]
    assert SCHEMA in texts[0] and asked.messages[0]["content"] in texts[0]
    first, second = texts[2], texts[4]
    assert first.startswith("\n<observation>\nname\n")
    assert first.endswith("(1 row)\n2 turns left.\n</observation>\n")
    assert second.endswith("(1 row)\n1 turn left.\n</observation>\n")
    assert [segment.trainable for segment in right.sequences[0].segments] == [
        author is model for author in authors
    ]

    assert late.stop_reason is StopReason.MAX_TURNS
    assert len(late.calls) == 2, "the third query is not made"
    assert measured(bare) == {"right": 1.0, "form": 0.0, "queries": 0.0}
    assert silent.stop_reason is StopReason.NO_ACTION_IN_OUTPUT
    assert not silent.calls
    assert failing.calls[0].outcome.observation.startswith("Error: ")
    assert [one.reward for one in (late, bare, wrong, silent, failing)] == [-1.0] * 5
