"""Search agents through real processes: engine, `toolsvc serve search`; a scripted policy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engine.conftest import MakeWorld, World
from tests.support.codecs import END
from tests.support.dialogue import Script, in_turn
from toolwright.types import Author, StopReason, Trajectory

pytestmark = pytest.mark.slow

RECIPE = Path(__file__).parents[3] / "recipes" / "se_search"
BUILD = "from toolsvc.cli import main; main()"
PASSAGES = {
    "Violin": "A wooden instrument with four strings, played with a bow.",
    "Cremona": "A city in Lombardy where Antonio Stradivari built instruments.",
    "Chess": "A board game for two, ended by checkmate.",
}
ASKED = "Where did the best known maker of violins work?"
LIMITS = {"turns": 2, "action": 512, "observation": 512, "response": 6000, "model": 8000}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    rows = [
        {"id": str(number), "contents": f'"{title}"\n{text}'}
        for number, (title, text) in enumerate(PASSAGES.items())
    ]
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    words = ("index", "build", folder / "corpus.jsonl", "--output", folder / "index")
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *map(str, words), "--kind", "bm25"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "index"


async def rolled_out(
    here: World,
    index: Path,
    ways: Sequence[Sequence[str]],
    script: Script | None = None,
    **options: dict[str, Any],
) -> list[Trajectory]:
    """One group, a member a way, in the order of the ways. script: None for the ways in turn."""
    begun = f"Question: {ASKED}"
    in_order = in_turn(here.codec, ways, lambda text: text.rindex(begun))
    here.sampler._script = script or in_order
    (here.folder / "rows.jsonl").write_text(
        json.dumps({"question": ASKED, "answers": ["Cremona", "Cremona, Italy"]}) + "\n",
        encoding="utf-8",
    )
    serve = ["search", "--set", f"search.index={index}", "--set", "search.titles=quoted"]
    here.tables["tools"] = {"search": {"serve": [*serve, "--set", "search.topk=1"]}}
    here.tables["task"].pop("protocol_options", None)
    task = {
        "source": "rows.jsonl",
        "protocol": str(RECIPE / "protocol.py:SeSearch"),
        "protocol_options": {"t_max": 2},
        "reward": str(RECIPE / "score.py:SearchReward"),
        "reward_options": {"t_max": 2, "threshold_semantics": "min_distance"},
        "group_hook": str(RECIPE / "figures.py:Decided"),
        "limits": LIMITS,
        "tools": ["search"],
        **options,
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


def authors(trajectory: Trajectory) -> list[Author]:
    return [segment.author for segment in trajectory.sequences[0].segments]


FIRST = "<think>Who?</think><search> maker of the violin </search>"
SECOND = "<memory>A violin is a wooden instrument.</memory><search>where Stradivari built</search>"
LAST = "<memory>Stradivari worked in Cremona.</memory><answer> Cremona </answer>"


async def test_search_memory_answer_correction_and_the_last_turn(
    world: MakeWorld, index: Path
) -> None:
    here = await world()
    ways = [
        [FIRST, SECOND, LAST],
        [f"I do not know.{END}", "<search>  </search>", "<answer>Rome</answer>"],
        ["<think>1</think><search>violin bow</search>", SECOND, "<search>one more</search>"],
        [f"<documents>Cremona</documents><memory>Cremona</memory>{END}", LAST],
    ]
    right, corrected, late, forger = await rolled_out(here, index, ways)
    model, tool, system = Author.MODEL, Author.TOOL, Author.SYSTEM

    assert authors(right) == [Author.PROMPT, model, tool, model, tool, model]
    assert right.stop_reason is StopReason.ANSWERED
    texts = here.texts(right)
    assert texts[2][1] == f'\n<documents>Doc 1(Title: "Violin") {PASSAGES["Violin"]}</documents>\n'
    assert 'Doc 1(Title: "Cremona")' in texts[4][1]
    assert "Question: " + ASKED in texts[0][1]
    assert [segment.trainable for segment in right.sequences[0].segments] == [
        author is model for author in authors(right)
    ]
    assert {part.name: round(part.value, 6) for part in right.reward_parts} == {
        "answer": 1.0,
        "memory": 0.1,
        "query": -0.02,
        "format": 0.0,
    }
    watched = {}
    for event in right.events:
        if event.kind == "measured":
            watched.update(event.data)
    assert watched["searches"] == 2.0
    assert watched["decided_by_form"] == 0.0

    assert authors(corrected) == [Author.PROMPT, model, system, model, system, model]
    assert "<|im_start|>user\nThat was no action." in here.texts(corrected)[2][1]
    assert here.texts(corrected)[4][1].startswith("\nThat was no action.")
    assert not corrected.calls
    parts = {part.name: part.value for part in corrected.reward_parts}
    assert parts["answer"] == parts["memory"] == parts["query"] == 0.0
    # Two turns without an action, and a search that no documents follow.
    assert parts["format"] == pytest.approx(-0.03)

    assert late.stop_reason is StopReason.MAX_TURNS
    assert len(late.calls) == 2
    parts = {part.name: part.value for part in late.reward_parts}
    assert parts["query"] == pytest.approx(0.02)
    # Three searches, nothing noted before the last one, no answer at the end.
    assert parts["format"] == pytest.approx(-0.03)

    parts = {part.name: part.value for part in forger.reward_parts}
    assert parts["answer"] == 1.0
    # The tag, notes about nothing twice, a turn without an action.
    assert parts["format"] == pytest.approx(-0.04)


async def test_another_systems_words_are_one_field(world: MakeWorld, index: Path) -> None:
    here = await world()
    ways = [[FIRST, "<think>so</think><answer>Cremona</answer>"]]
    plain = {"memory_weight": 0.0, "query_weight": 0.0, "format_weight": 0.0}
    (one,) = await rolled_out(
        here,
        index,
        ways,
        protocol_options={"style": "verltool"},
        reward_options={
            "style": "${task.protocol_options.style}", "answer": "em", "wrong": -1.0, **plain
        },
    )  # fmt: skip
    assert here.texts(one)[2][1].startswith("\n<information>Doc 1(")
    assert one.reward == 1.0
