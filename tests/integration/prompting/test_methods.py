"""The methods that search, through a real engine and search service; the policy is scripted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.scripted import ScriptRequest
from tests.integration.engine.conftest import MakeWorld, World
from tests.integration.prompting.conftest import FOLDER
from tests.integration.toolsvc.conftest import Service
from tests.support.dialogue import said
from toolwright.recipe import load_recipe
from toolwright.types import Author, StopReason

pytestmark = pytest.mark.quick

ROW = json.loads((FOLDER / "example/questions.jsonl").read_text(encoding="utf-8").splitlines()[4])
"""The village in which the builder of the lighthouse was born: two passages."""
ANSWER = "<answer> Sille </answer>"
REPLIES = {
    "rag": [" </search>", ANSWER],
    "ircot": [" </search>", "It was built by Maret Holm.\n", ANSWER],
    "search_o1": [
        "<search> lighthouse of Orvel </search>",
        " Maret Holm built it. </notes>",
        "<search> Maret Holm engineer </search>",
        " She was born in Sille. </notes>",
        ANSWER,
    ],
    "react": [
        " The builder.\nAction: Search[lighthouse of Orvel]\n",
        " It was she.\nAction: Search[Maret Holm engineer]\n",
        " Sille.\nAction: Finish[Sille]\n",
    ],
}


def say(here: World, replies: Sequence[str]) -> None:
    """Reply number n behind n - 1 others, wherever they stand in the policy's turn."""

    def script(request: ScriptRequest) -> Sequence[int]:
        text = here.codec.decode(request.input_ids).partition("<|im_start|>assistant")[2]
        written = 0
        while written < len(replies) and replies[written] in text:
            text = text.partition(replies[written])[2]
            written += 1
        reply = replies[min(written, len(replies) - 1)]
        return here.codec.encode(reply)[said(here.codec, text, reply) :]

    here.sampler._script = script


@pytest.mark.parametrize("method", sorted(REPLIES))
async def test_what_is_found_comes_back_and_the_answer_is_scored(
    world: MakeWorld, search: Service, tmp_path: Path, method: str
) -> None:
    here = await world()
    task = load_recipe(FOLDER / f"{method}.toml").shared.task
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n", encoding="utf-8")
    say(here, REPLIES[method])
    here.tables["tools"] = {"search": {"service": search.address, "run_limit_s": 30.0}}
    here.tables["task"] = {
        "source": "rows.jsonl",
        "protocol": str(FOLDER / task.protocol.removeprefix("./")),
        "protocol_options": dict(task.protocol_options),
        "reward": str(FOLDER / task.reward.removeprefix("./")),
        "reward_options": dict(task.reward_options),
        "limits": task.limits.model_dump(),
        "tools": ["search"],
    }
    run_table = {"steps": 1, "groups_per_step": 1, "group_size": 1}
    async with here.engine(run=run_table, engine={"max_concurrent": 1}) as run:
        (group,) = await run.learner.lease(await run.learner.version(), wait=60)
    (found,) = group.members
    assert found.stop_reason is StopReason.ANSWERED, here.texts(found)
    assert found.reward == 1.0
    assert {part.name: part.value for part in found.reward_parts} == {
        "em": 1.0, "f1": 1.0, "cem": 1.0,
    }  # fmt: skip
    read = "".join(text for author, text in here.texts(found) if author == "tool")
    assert "Doc 1(Title: " in read
    assert "born in the village of Sille" in read
    assert all(call.outcome.valid for call in found.calls)
    authors = {segment.author for segment in found.sequences[0].segments}
    assert (Author.SYSTEM in authors) == (method == "search_o1")
