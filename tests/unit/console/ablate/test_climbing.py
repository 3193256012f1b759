"""The order of a ladder's runs and what ends it, with runs that only leave their files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from console.ablate import climbing
from console.ablate.climbing import ablate
from console.ablate.ladder import LadderOptions
from console.asked.setup import Options
from console.course.course import Ending
from tests.support.ladders import climb, ladder, leave, write_recipe


class Runs:
    """Stands for `toolwright run`. ends: exit codes by "NAME/seed-N"; 0 where none is said."""

    def __init__(self, recipe: Path) -> None:
        self.made: list[str] = []
        self.ends: dict[str, int] = {}
        self._recipe = recipe

    def start(self, options: Options, words: Sequence[str]) -> Ending:
        name, seed = options.folder.parent.name, int(options.folder.name.removeprefix("seed-"))
        self.made.append(f"{name}/seed-{seed}")
        assert words[:2] == ["toolwright", "run"] and str(options.folder) in shlex.join(words)
        status = self.ends.get(self.made[-1], 0)
        found = ladder(self._recipe, seeds=seed)
        if status == 0:
            climb(found, seed, name, height=0.5, late=3)
        elif status != 2:
            leave(found, name, seed, [0.1], ended=status, sentence=f"it ended with {status}")
        if name == "base" and status != 2:
            (options.folder / "warm").mkdir()
        return Ending(status=status, sentence="" if not status else f"it ended with {status}")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    async def checked(*_: object) -> None:
        return None

    found = Runs(write_recipe(tmp_path))
    monkeypatch.setattr(climbing, "start", found.start)
    monkeypatch.setattr(climbing, "_checked", checked)
    return found


def figures(folder: Path) -> dict[str, list[str]]:
    """What became of each variation's runs."""
    data = json.loads((folder / "run-ablate/ablate.json").read_text(encoding="utf-8"))
    return {row["name"]: [run["word"] for run in row["runs"]] for row in data["rows"]}


def test_all_runs_are_made_once(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate(LadderOptions(recipe=tmp_path, seeds=2)) == 0
    first = [f"{name}/seed-1" for name in ("base", "slow", "no credit")]
    assert runs.made == [*first, *(name.replace("1", "2") for name in first)]
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "run-ablate/ablate.json")
    assert ablate(LadderOptions(recipe=tmp_path, seeds=2)) == 0
    assert len(runs.made) == 6
    assert ablate(LadderOptions(recipe=tmp_path, seeds=3, only=("slow",))) == 0
    assert runs.made[6:] == ["base/seed-3", "slow/seed-3"]


def test_a_run_that_fails_ends_no_other_and_is_told_by_the_exit_code(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.ends = {"slow/seed-1": 1, "no credit/seed-1": 4}
    assert ablate(LadderOptions(recipe=tmp_path, seeds=2)) == 1
    assert len(runs.made) == 6
    assert figures(tmp_path) == {
        "base": ["done", "done"],
        "slow": ["failed", "done"],
        "no credit": ["failed", "done"],
    }
    said = capsys.readouterr().out
    assert "slow, seed 1: failed (status 1): it ended with 1" in said
    runs.made.clear()
    runs.ends = {"slow/seed-1": 1}
    assert ablate(LadderOptions(recipe=tmp_path, seeds=2)) == 1
    assert runs.made == ["slow/seed-1"], "nothing to learn from is what it came to"


def test_a_signal_ends_the_ladder_and_the_same_command_goes_on(runs: Runs, tmp_path: Path) -> None:
    runs.ends = {"slow/seed-1": 130}
    assert ablate(LadderOptions(recipe=tmp_path, seeds=1)) == 130
    assert runs.made == ["base/seed-1", "slow/seed-1"]
    assert figures(tmp_path)["slow"] == ["unfinished"]
    assert ablate(LadderOptions(recipe=tmp_path, seeds=1)) == 130
    assert runs.made[2:] == ["slow/seed-1"]


def test_what_refuses_the_recipe_itself_ends_the_ladder(runs: Runs, tmp_path: Path) -> None:
    runs.ends = {"base/seed-1": 2}
    assert ablate(LadderOptions(recipe=tmp_path, seeds=3)) == 2
    assert runs.made == ["base/seed-1"]
    runs.ends = {"slow/seed-1": 2}
    assert ablate(LadderOptions(recipe=tmp_path, seeds=1)) == 1
    assert runs.made[1:] == ["base/seed-1", "slow/seed-1", "no credit/seed-1"]


def test_a_variation_does_not_begin_without_the_warm_up_of_its_seed(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate(LadderOptions(recipe=tmp_path, seeds=1, only=("base",))) == 0
    (tmp_path / "run-ablate/base/seed-1/warm").rmdir()
    assert ablate(LadderOptions(recipe=tmp_path, seeds=1)) == 1
    assert runs.made == ["base/seed-1"]
    assert "slow, seed 1: failed (status 1): it begins with" in capsys.readouterr().out


def test_a_run_of_another_recipe_is_refused_before_anything_is_run(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate(LadderOptions(recipe=tmp_path, seeds=1)) == 0
    write_recipe(tmp_path, learner={"optimizer": {"beta2": 0.5}})
    runs.made.clear()
    assert ablate(LadderOptions(recipe=tmp_path, seeds=2)) == 2
    assert "was begun with learner.optimizer.beta2" in capsys.readouterr().err
    assert runs.made == []
