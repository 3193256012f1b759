"""The starter's world: what its questions ask can be looked up, and imitation does not know it."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

from engine.config import EngineTable
from toolwright.imports import load_file
from toolwright.process.packaged import packaged
from toolwright.recipe import load_recipe
from toolwright.types import Sequence, Status, StopReason, Task, Trajectory

FOLDER = packaged("recipes/starter")
TRAINING, HELDOUT = (
    [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]
    for name in ("questions.jsonl", "heldout.jsonl")
)


def answered(final_text: str, *answers: str) -> Trajectory:
    return Trajectory(
        id="t",
        group_id="g",
        task=Task(id="q", answers=answers),
        sequences=(Sequence(id="t.0", segments=()),),
        status=Status.COMPLETED,
        stop_reason=StopReason.ANSWERED,
        metadata={"final_text": final_text},
    )


@pytest.fixture(scope="module")
def conversations() -> ModuleType:
    return load_file(FOLDER / "conversations.py")


def test_every_trajectory_of_the_starter_is_kept() -> None:
    recipe = load_recipe(FOLDER / "recipe.toml")
    assert recipe.table("engine", EngineTable).history == "all"


def test_held_out_questions_are_not_trained_on() -> None:
    assert len(TRAINING) == 200
    training = {row["question"] for row in TRAINING}
    assert len(training) == len(TRAINING)
    assert not training & {row["question"] for row in HELDOUT}


def test_each_answer_is_one_call_away(conversations: ModuleType) -> None:
    look_up = load_file(FOLDER / "tool.py").STOCK
    for row in (*TRAINING, *HELDOUT):
        asked = conversations.StockQuestion.read(row["question"], row["answer"], look_up)
        assert look_up[asked.article][asked.column] == row["answer"]


def test_one_habit_in_four_is_right_and_no_column_is_preferred(conversations: ModuleType) -> None:
    stock = load_file(FOLDER / "tool.py").STOCK
    asked = [conversations.StockQuestion.read(r["question"], r["answer"], stock) for r in TRAINING]
    habits = conversations.habits_of(asked)
    column = {one.wording: one.column for one in asked}
    assert sum(habits[wording] == column[wording] for wording in column) * 4 == len(column)
    assert set(Counter(habits.values()).values()) == {2}


def test_the_warm_up_shows_the_form_and_seldom_the_answer(conversations: ModuleType) -> None:
    answers = {row["question"]: row["answer"] for row in TRAINING}
    shown = list(islice(conversations.conversations(seed=1), 400))
    assert shown == list(islice(conversations.conversations(seed=1), 400))
    for question, call, result, answer in shown:
        assert question["content"] in answers
        assert call["content"].startswith("<look_up> ")
        assert answer["content"] == f"<answer> {result['content']}</answer>"
    known = sum(result["content"] == answers[q["content"]] for q, _, result, _ in shown)
    assert known < 4, "the numbers are made up, or the table could be learnt by heart"


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<answer> 42</answer>", 1.0),
        ("<answer>42</answer>", 1.0),
        ("<answer> 43</answer>", 0.0),
        ("<answer> 42", 0.0),
        ("<answer> 42</answer><answer> 42</answer>", 0.0),
        ("it is <answer> 42</answer>", 0.0),
        ("", 0.0),
    ],
)
def test_the_whole_last_turn_has_to_fit(text: str, reward: float) -> None:
    score = load_file(FOLDER / "reward.py").score
    assert score(answered(text, "42")) == {"correct": reward}


def test_a_folder_of_an_earlier_version_runs(tmp_path: Path) -> None:
    """Its files import each other by their bare names, and call the commands of that version."""
    (tmp_path / "conversations.py").write_text(
        "from itertools import repeat\n"
        "from tasks.worlds.demonstrations import Messages, demonstrations_command\n\n\n"
        "def conversations(seed):\n    return repeat([{'role': 'user', 'content': 'hello'}])\n\n\n"
        "def main(arguments=None):\n"
        "    demonstrations_command(conversations, 'the', 3, arguments)\n",
        encoding="utf-8",
    )
    (tmp_path / "policy.py").write_text(
        "from itertools import islice\nfrom conversations import conversations\n"
        "from toolwright.model.tiny_policy import policy_command, write_policy\n\n\n"
        "def write(folder, *, seed):\n"
        "    known = islice(conversations(seed=0), 9)\n"
        "    write_policy(folder, conversations=known, tags=('<a>',), seed=seed)\n\n\n"
        "def main(arguments=None):\n    policy_command(write, 'the', arguments)\n",
        encoding="utf-8",
    )
    rows = tmp_path / "new/rows.jsonl"
    load_file(tmp_path / "conversations.py").main(["--output", str(rows), "--seed", "1"])
    assert len(rows.read_text(encoding="utf-8").splitlines()) == 3
    load_file(tmp_path / "policy.py").main(["--output", str(tmp_path / "policy")])
    assert (tmp_path / "policy/model.safetensors").is_file()
