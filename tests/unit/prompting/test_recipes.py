"""The recipe files: `engine check` accepts each, limits suit the methods, the reward is what the
README says, and the example can be answered from its passages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from engine.config import EngineTable
from engine.offline.check.command import check
from tests.support.policy import write_policy
from tests.support.recipes import Part
from tests.unit.prompting.conftest import FOLDER
from tests.unit.prompting.test_hostile import scored
from toolwright.recipe import load_recipe

FILES = sorted(FOLDER.glob("*.toml"))
METHODS = ["cot", "direct", "ircot", "rag", "react", "search_o1"]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    write_policy(folder)
    return folder


def test_there_is_a_file_for_each_method() -> None:
    assert [file.stem for file in FILES] == sorted([*METHODS, "recipe"])
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}.toml`" in readme for name in METHODS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_engine_check_accepts_it(file: Path, policy: Path, tmp_path: Path) -> None:
    changed = [f"policy.model={policy}", f"run.folder={tmp_path}"]
    recipe = load_recipe(file, changed)
    lines = list(check(recipe, recipe.table("engine", EngineTable), connect=False))
    assert not [line for line in lines if "warning" in line or "left out" in line], lines
    assert any("example" in line for line in lines), lines


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_evaluation_is_greedy_and_calls_what_it_serves(file: Path) -> None:
    recipe = load_recipe(file)
    suites = recipe.table("engine", EngineTable).evaluation.suites
    assert [suite.temperature for suite in suites] == [0.0]
    searching = file.stem in ("rag", "ircot", "search_o1", "react")
    assert bool(recipe.shared.tools) == bool(recipe.shared.task.tools) == searching


@pytest.mark.parametrize(
    ("name", "least"), [("direct", 0), ("cot", 0), ("rag", 1), ("ircot", 6), ("search_o1", 11)]
)
def test_turns_are_enough_for_the_method(name: str, least: int) -> None:
    """ircot: the question, its steps, and being asked to read. search_o1: a search and notes each,
    and being told that none is left."""
    task = load_recipe(FOLDER / f"{name}.toml").shared.task
    options = task.protocol_options
    assert task.limits.turns >= least
    assert least in (0, 1, options.get("steps", 0) + 2, 2 * options.get("searches", 0) + 1)


@pytest.mark.parametrize(
    ("form", "text", "em", "f1", "cem"),
    [
        ("tags", "so <answer> The Sille. </answer><|im_end|>", 1.0, 1.0, 1.0),
        ("tags", "<answer>Sille valley</answer>", 0.0, 2 / 3, 1.0),
        ("tags", "<answer>Orvel</answer><answer>Sille</answer>", 1.0, 1.0, 1.0),
        ("tags", "<answer>Sille\n", 0.0, 0.0, 0.0),
        ("tags", "Sille", 0.0, 0.0, 0.0),
        ("tags", "", 0.0, 0.0, 0.0),
        ("line", "<answer> Sille\n", 1.0, 1.0, 1.0),
        ("line", "<answer> \n", 0.0, 0.0, 0.0),
        ("finish", "Action: Finish[Sille]\n", 1.0, 1.0, 1.0),
        ("finish", "<answer>Sille</answer>", 0.0, 0.0, 0.0),
        ("finish", "Action: Search[Sille]\n", 0.0, 0.0, 0.0),
    ],
)
def test_the_reward_is_exact_match(
    part: Part, form: str, text: str, em: float, f1: float, cem: float
) -> None:
    total, parts = part("reward.PromptingReward")(form=form)(scored(text, "Sille"))
    assert total == em
    assert parts == {"em": em, "f1": pytest.approx(f1), "cem": cem}


def test_an_answer_that_is_not_asked_for_is_worth_nothing(part: Part) -> None:
    assert part("reward.PromptingReward")()(scored("<answer>Sille</answer>"))[0] == 0.0
    with pytest.raises(ValueError, match="form"):
        part("reward.PromptingReward")(form="json")


def test_each_example_can_be_answered_from_its_passages(part: Part) -> None:
    passages = (FOLDER / "example/passages.jsonl").read_text(encoding="utf-8")
    rows = [
        json.loads(line) for line in (FOLDER / "example/questions.jsonl").open(encoding="utf-8")
    ]
    assert len(rows) == 8
    for row in rows:
        assert any(answer in passages for answer in row["answer"]), row
    ids = [json.loads(line)["id"] for line in passages.splitlines()]
    assert ids == [str(number) for number in range(len(ids))]


def test_the_prompts_are_within_what_a_method_reads(part: Part) -> None:
    """Tags that the words name are those at which the method stops."""
    for name, words in (("NaiveRag", "RAG"), ("Ircot", "IRCOT"), ("SearchO1", "SEARCH_O1")):
        named = set(re.findall(r"</\w+>", part("methods.PROMPTS")[words.lower()])) - {
            "</information>"
        }
        assert named <= set(part(f"methods.{name}")().ends())
