"""ablate.json, table and page of runs whose numbers are known, and of hostile ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.ablate.ladder import Ladder
from console.ablate.results.page import render
from console.ablate.results.table import table
from console.ablate.standing import standing
from console.course.course import Ending
from console.report.writing import dumps
from tests.support.ladders import STEPS, climb, ladder, leave, told, write_recipe
from tests.support.stills import data_of

NAN = float("nan")


@pytest.fixture
def three(tmp_path: Path) -> Ladder:
    """Three seeds: `slow` ends as high and later, `no credit` ends lower."""
    found = ladder(write_recipe(tmp_path), seeds=3)
    for seed in found.seeds:
        climb(found, seed, "base", height=0.8, late=4)
        climb(found, seed, "slow", height=0.8, late=12)
        climb(found, seed, "no credit", height=0.4, late=4)
    return found


def row(data: dict[str, Any], name: str) -> dict[str, Any]:
    found = next(one for one in data["rows"] if one["name"] == name)
    assert isinstance(found, dict)
    return found


def against(data: dict[str, Any], name: str) -> dict[str, str]:
    return {key: one["against"] for key, one in row(data, name)["differences"].items()}


def shown(data: dict[str, Any]) -> str:
    return "\n".join(table(data))


def test_who_learns_later_has_less_area_more_steps_and_the_same_end(three: Ladder) -> None:
    data = told(three)
    assert [one["name"] for one in data["rows"]] == ["base", "slow", "no credit"]
    assert against(data, "slow") == {
        "heldout-sampled": "noise",
        "heldout-greedy": "noise",
        "reward": "noise",
        "area": "lower",
        "steps": "higher",
    }
    assert set(against(data, "no credit").values()) == {"lower", "not compared"}
    base, slow = row(data, "base")["means"], row(data, "slow")["means"]
    assert base["heldout-sampled"] == pytest.approx(
        {"mean": 0.82, "stderr": 0.01 / 3**0.5, "n": 3, "of": 3}
    )
    assert base["reward"]["mean"] == pytest.approx(0.82, abs=0.003)
    # Means of five reach nine tenths some steps after the reward itself does.
    assert 4 < base["steps"]["mean"] < slow["steps"]["mean"] < 16
    assert row(data, "no credit")["means"]["steps"] == {
        "mean": None, "stderr": None, "n": 0, "of": 3,
    }  # fmt: skip
    assert data["failed"] == 0
    assert row(data, "slow")["changes"] == {"learner.optimizer.lr": ["0.0001", "1e-07"]}


def test_a_row_with_a_failed_run_is_not_judged_and_says_so(tmp_path: Path) -> None:
    found = ladder(write_recipe(tmp_path), seeds=3)
    for seed in found.seeds:
        climb(found, seed, "base", height=0.4, late=4)
    climb(found, 1, "slow", height=0.9, late=4)
    climb(found, 2, "slow", height=0.9, late=4)
    said = "the loss is no number\n    a log\n    of many lines"
    leave(found, "slow", 3, [0.1] * 3, ended=3, sentence=said)
    data = told(found)
    assert data["failed"] == 1
    assert row(data, "slow")["means"]["heldout-sampled"]["n"] == 2
    assert set(against(data, "slow").values()) == {"incomplete"}
    text = shown(data)
    assert "slow, seed 3: failed (status 3): the loss is no number\n" in text + "\n"
    assert "2/3" in text
    assert data["left_out"] == [], "all that were asked for have a row"
    assert [run["word"] for run in row(data, "no credit")["runs"]] == ["not run"] * 3
    assert "the loss is no number" in render(data)


def test_who_had_nothing_to_learn_from_in_all_steps_has_a_score_like_others(
    tmp_path: Path,
) -> None:
    found = ladder(write_recipe(tmp_path), seeds=3)
    nothing = [("heldout-sampled", at, 0.0) for at in (0, STEPS)]
    for seed in found.seeds:
        climb(found, seed, "base", height=0.4, late=4)
        said = "every reward is 0"
        leave(found, "slow", seed, lambda _: 0.0, scores=nothing, ended=4, sentence=said)
    leave(found, "no credit", 1, [0.0] * (STEPS - 1), ended=4, sentence="patience is over")
    leave(found, "no credit", 2, [None] * STEPS, ended=4, sentence="all is masked")
    data = told(found)
    assert [run["word"] for run in row(data, "slow")["runs"]] == ["done"] * 3
    assert against(data, "slow")["heldout-sampled"] == "lower"
    words = [run["word"] for run in row(data, "no credit")["runs"]]
    assert words == ["failed", "failed", "not run"], "steps to go, and nothing measured"
    text = shown(data)
    assert "slow, seed 2: done (status 4): every reward is 0\n" in text
    rung = next(one for one in found.rungs if (one.variation.name, one.seed) == ("slow", 1))
    assert standing(rung, Ending(status=4, sentence="")).word == "done"
    assert standing(rung, Ending(status=1, sentence="it fell")).word == "failed"


def test_what_was_not_measured_is_missing_and_not_an_older_value(tmp_path: Path) -> None:
    found = ladder(write_recipe(tmp_path), seeds=2)
    for seed in (1, 2):
        climb(found, seed, "base", height=0.4, late=4)
    scores = [("heldout-sampled", 0, 0.1), ("heldout-sampled", STEPS, 0.9)]
    leave(found, "slow", 1, lambda at: at / STEPS, scores=scores)
    leave(found, "slow", 2, lambda at: at / STEPS, scores=scores[:1])
    data = told(found)
    assert row(data, "slow")["means"]["heldout-sampled"] == {
        "mean": 0.9, "stderr": None, "n": 1, "of": 2,
    }  # fmt: skip
    assert row(data, "slow")["means"]["heldout-greedy"]["mean"] is None
    assert row(data, "slow")["differences"]["heldout-sampled"]["against"] == "incomplete"
    assert row(data, "slow")["differences"]["heldout-greedy"]["against"] == "not compared"
    text = shown(data)
    assert "0.900 (1 of 2)" in text
    assert f"slow: seed 2: heldout-sampled was not measured at step {STEPS}" in text


def test_rewards_that_are_no_numbers_count_for_nothing(tmp_path: Path) -> None:
    found = ladder(write_recipe(tmp_path), seeds=2)
    for seed in (1, 2):
        climb(found, seed, "base", height=0.4, late=4)
    leave(found, "slow", 1, [NAN] * STEPS)
    leave(found, "slow", 2, [None, "x", float("inf"), 1e999, *[0.5] * (STEPS - 4)])
    data = json.loads(dumps(told(found)))
    slow = row(data, "slow")
    assert slow["means"]["reward"] == {"mean": 0.5, "stderr": None, "n": 1, "of": 2}
    assert slow["means"]["area"]["mean"] == 0.5
    assert slow["differences"]["reward"]["against"] == "incomplete"
    assert "seed 1: no step has a reward" in slow["remarks"]
    assert render(data) and table(data)


def test_rows_that_cannot_be_compared_say_why(tmp_path: Path) -> None:
    ablations = [
        {"name": "half", "set": ["run.groups_per_step=2", "task.limits.turns=1"]},
        {"name": "poor", "set": ["task.reward_options={steps=false}"]},
    ]
    recipe = write_recipe(tmp_path, console={"ablations": ablations})
    data = told(ladder(recipe, seeds=1))
    assert "changes run.groups_per_step, task.limits.turns: its budget" in shown(data)
    assert "its reward is not the base's" in row(data, "poor")["remarks"][0]
    by = {"ablations": ablations, "ablate_by": "correct"}
    found = ladder(write_recipe(tmp_path, console=by), seeds=1)
    assert row(told(found), "poor")["remarks"] == []
    climb(found, 1, "base", height=0.8, late=4)
    leave(found, "poor", 1, [0.5] * STEPS, scores=[("heldout-sampled", STEPS, 0.5)])
    data = told(found)
    assert row(data, "base")["means"]["heldout-sampled"]["mean"] == pytest.approx(0.405)
    assert row(data, "poor")["means"]["heldout-sampled"]["mean"] == 0.25
    assert "reward/correct, area" in shown(data)


def test_a_run_of_another_recipe_is_in_no_table(three: Ladder) -> None:
    write_recipe(three.recipe.parent, learner={"optimizer": {"beta2": 0.5}})
    again = ladder(three.recipe, seeds=3, only=("base",))
    data = told(again)
    assert [one["name"] for one in data["rows"]] == ["base"]
    assert "begun with another learner.optimizer.beta2" in shown(data)


def test_names_and_sentences_of_strangers_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\x1b[31m"
    recipe = write_recipe(
        tmp_path,
        console={
            "ablations": [{"name": "a", "set": [f"run.name='{evil[:-5]}'"]}],
            "report": {"suites": [{"name": "heldout", "title": evil[:-5]}]},
        },
    )
    found = ladder(recipe, seeds=1)
    climb(found, 1, "base", height=0.5, late=3, **{f"reward/{evil}": 1.0})
    leave(found, "a", 1, [0.1], ended=1, sentence=evil)
    data = json.loads(dumps(told(found)))
    page = render(data)
    assert "<script>alert" not in page
    rows = data_of(page)["data"]["rows"]
    assert rows[0]["shown"]["heldout-sampled"] == "0.510"
    assert not any("\x1b" in line for line in table(data))


def test_a_secret_of_a_recipe_does_not_leave_it(tmp_path: Path) -> None:
    ablations = [{"name": "a", "set": ["task.reward_options={api_key='hunter2hunter2'}"]}]
    found = ladder(write_recipe(tmp_path, console={"ablations": ablations}), seeds=1)
    assert "hunter2" not in dumps(told(found))


def test_steps_to_a_threshold_have_a_mean_where_every_run_came_there(tmp_path: Path) -> None:
    found = ladder(write_recipe(tmp_path), seeds=3, threshold=0.5)
    for seed in found.seeds:
        climb(found, seed, "base", height=0.8, late=4)
        climb(found, seed, "slow", height=0.8 if seed > 1 else 0.3, late=4)
    data = told(found)
    assert row(data, "base")["means"]["steps"]["n"] == 3
    # Without the one that never came there `slow` would be as quick as the base.
    slow = row(data, "slow")["means"]["steps"]
    assert (slow["mean"], slow["n"], slow["of"]) == (None, 2, 3)
    assert against(data, "slow")["steps"] == "not compared"
    assert "2 of 3 runs" in shown(data)


def test_a_variation_of_the_steps_is_done_when_it_has_made_its_own(tmp_path: Path) -> None:
    ablations = [{"name": "short", "set": ["run.steps=10"]}]
    found = ladder(write_recipe(tmp_path, console={"ablations": ablations}), seeds=1)
    leave(found, "short", 1, [0.5] * 10, scores=[("heldout-sampled", 10, 0.5)])
    leave(found, "base", 1, [0.5] * 10)
    data = told(found)
    assert [one["runs"][0]["word"] for one in data["rows"]] == ["unfinished", "done"]
    assert row(data, "short")["means"]["heldout-sampled"]["mean"] == 0.5
    assert "base, seed 1: unfinished: 10 of 20 steps" in shown(data)
