"""Which runs a ladder has, what they share, and what is refused before any of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.ablate import begun
from console.ablate.climbing import words_of
from console.ablate.ladder import Ladder, Rung
from console.ablate.standing import has_to_run
from console.asked.setup import set_up
from console.course.session import planned
from console.errors import NothingStarted
from tests.support.ladders import ABLATIONS, climb, ladder, leave, write_recipe


def rung(of: Ladder, name: str, seed: int) -> Rung:
    return next(one for one in of.rungs if (one.variation.name, one.seed) == (name, seed))


def refused(folder: Path, ablations: Any, **changes: Any) -> str:
    with pytest.raises(NothingStarted) as caught:
        ladder(write_recipe(folder, console={"ablations": ablations}, **changes), seeds=1)
    return str(caught.value)


def test_every_seed_has_its_base_first_and_each_run_a_folder(tmp_path: Path) -> None:
    found = ladder(write_recipe(tmp_path), seeds=2)
    home = tmp_path / "run-ablate"
    assert [one.folder for one in found.rungs] == [
        home / name / f"seed-{seed}" for seed in (1, 2) for name in ("base", "slow", "no credit")
    ]
    setup = set_up(rung(found, "slow", 2).options)
    assert setup.run == home / "slow/seed-2"
    assert (setup.seed, setup.recipe.raw["sft"]["seed"]) == (2, 2)
    assert setup.recipe.raw["learner"]["optimizer"]["lr"] == 1e-7
    assert not home.exists(), "asking leaves nothing"


def test_the_warm_up_of_a_seed_is_made_once(tmp_path: Path) -> None:
    found = ladder(write_recipe(tmp_path), seeds=2)
    warm = tmp_path / "run-ablate/base/seed-2/warm"
    slow = rung(found, "slow", 2)
    assert [maker.makes.name for maker in planned(set_up(found.rungs[0].options))] == [
        *("rows.tr", "warm")
    ]
    assert set_up(slow.options).recipe.shared.policy.model == warm
    assert f"policy.model={warm}" in words_of(slow)
    own = set_up(rung(found, "base", 2).options)
    assert own.recipe.resolve(own.recipe.shared.policy.model) == warm
    assert "not there" in slow.awaits() and str(warm) in slow.awaits()
    warm.mkdir(parents=True)
    assert slow.awaits() == ""
    assert planned(set_up(slow.options)) == (), "neither the warm-up nor what it is made of"
    making = tmp_path / "run-ablate/base/seed-2/console/made/sft-sft.json"
    making.parent.mkdir(parents=True)
    making.write_text(json.dumps({"makes": str(warm), "settings": None}), encoding="utf-8")
    assert "not there" in slow.awaits(), "half of a warm-up is none"


@pytest.mark.parametrize(
    ("set_", "shares"),
    [
        ("sft.steps=3", False),
        ("policy.foreign_text='as_is'", False),
        ("task.limits.turns=1", True),
        ("learner.advantage.std='none'", True),
    ],
)
def test_a_variation_that_touches_the_warm_up_has_its_own(
    tmp_path: Path, set_: str, shares: bool
) -> None:
    recipe = write_recipe(tmp_path, console={"ablations": [{"name": "x", "set": [set_]}]})
    found = rung(ladder(recipe, seeds=1), "x", 1)
    assert found.variation.shares_policy is shares
    assert (found.awaits() == "") is not shares


def test_what_a_command_makes_is_made_by_every_run(tmp_path: Path) -> None:
    """It would be made there even where nobody reads it."""
    prepare = [{"name": "warm", "run": ["python", "p.py", "{seed}"], "makes": "run/warm"}]
    console = {"prepare": prepare, "ablations": ABLATIONS}
    found = ladder(write_recipe(tmp_path, console=console, sft=None, render=None), seeds=1)
    slow = rung(found, "slow", 1)
    assert not slow.variation.shares_policy
    assert [maker.makes for maker in planned(set_up(slow.options))] == [slow.folder / "warm"]


def test_only_names_what_is_run_beside_the_base(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    found = ladder(recipe, seeds=1, only=("slow",))
    assert [one.variation.name for one in found.to_run] == ["base", "slow"]
    assert len(found.rungs) == 3
    with pytest.raises(NothingStarted, match=r"no such variation \(did you mean 'slow'\?\)"):
        ladder(recipe, only=("slwo",))


@pytest.mark.parametrize(
    ("ablations", "says"),
    [
        ([], "names no variations"),
        ([{"name": "a", "set": ["x.y=1"]}], r"ablation 'a': .*x"),
        ([{"name": "a", "set": ["learner.optimizer.ler=1"]}], "ablation 'a': .*ler"),
        ([{"name": "a", "set": ["run.steps=1", "run.steps.x=1"]}], "ablation 'a': .*steps"),
        ([{"name": "a", "set": ["lr"]}], "table.key=value"),
        ([{"name": "base", "set": ["run.steps=1"]}], "'base' has a meaning of its own"),
        ([{"name": "../x", "set": ["run.steps=1"]}], "name"),
        ([{"name": "a", "set": ["run.seed=7"]}], "run.seed is what `toolwright ablate` sets"),
        ([ABLATIONS[0], ABLATIONS[0]], "two ablations are named 'slow'"),
        ([{"name": "a", "set": ["learner.optimizer.lr=1e-4"]}], "'a' changes nothing"),
        ([{"name": "a", "set": ["policy.model='nowhere'"]}], "ablation 'a', seed 1: .*nowhere"),
    ],
)
def test_what_does_not_fit_is_one_sentence(tmp_path: Path, ablations: Any, says: str) -> None:
    import re

    assert re.search(says, refused(tmp_path, ablations), re.DOTALL)
    assert not (tmp_path / "run-ablate").exists()


def test_one_memory_for_two_runs_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, ABLATIONS, memory={"store": "run/m.sqlite"})
    assert "one memory for base, seed 1 and slow, seed 1" in said
    for store in ("", "${run.folder}/m.sqlite"):
        recipe = write_recipe(tmp_path, memory={"store": store})
        assert ladder(recipe, seeds=2).rungs


def test_addresses_and_words_of_the_report_may_change_and_steps_may_grow(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    climb(ladder(recipe, seeds=1), 1, "slow", height=0.5, late=5)
    changes = {"sampler": {"endpoints": ["http://10.0.0.1:5"]}}
    console = {"threads": 2, "report": {"headline": "x"}, "ablations": ABLATIONS[:1]}
    write_recipe(tmp_path, console=console, **changes)
    begun.check(rung(ladder(recipe, seeds=1, overrides=("run.steps=30",)), "slow", 1))
    with pytest.raises(NothingStarted, match=r"run\.steps = 20, and it is 10 now"):
        begun.check(rung(ladder(recipe, seeds=1, overrides=("run.steps=10",)), "slow", 1))


def test_what_a_run_came_to_is_not_run_for_again(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    found = ladder(recipe, seeds=3)
    climb(found, 1, "base", height=0.5, late=5)
    leave(found, "base", 2, [0.0] * 4, ended=4, sentence="nothing to learn from")
    leave(found, "base", 3, [0.0] * 4, ended=1, sentence="the disk is full")
    leave(found, "slow", 1, [0.0] * 4, ended=130)
    leave(found, "slow", 2, [0.0] * 4, ended=None)
    assert {one.name for one in found.rungs if has_to_run(one)} == {
        *("base, seed 3", "slow, seed 1", "slow, seed 2", "slow, seed 3"),
        *(f"no credit, seed {seed}" for seed in (1, 2, 3)),
    }
    longer = ladder(recipe, seeds=2, overrides=("run.steps=40",))
    assert all(map(has_to_run, longer.rungs))


def test_a_threshold_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingStarted, match="--threshold nan"):
        ladder(write_recipe(tmp_path), threshold=float("nan"))
