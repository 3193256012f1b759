"""What `toolwright doctor` takes: a recipe, its folder, a run folder, or nothing."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from console.cli import app
from console.doctor.visit import _patient
from console.record.course import Began, CourseLog
from tests.support.recipes import to_toml

TABLES = {
    "run": {"name": "r", "folder": "run", "steps": 1, "groups_per_step": 1, "group_size": 2},
    "policy": {"model": "policy"},
    "task": {"source": "q.jsonl", "reward": "./r.py:score"},
    "sampler": {"endpoints": ["http://127.0.0.1:0"]},
}


def test_a_recipe_and_its_folder_are_the_same(tmp_path: Path) -> None:
    file = write(tmp_path)
    for given in (file, tmp_path):
        patient, found = _patient(given, ["run.steps=7"])
        assert patient.setup.recipe.shared.run.steps == 7
        assert (patient.setup.run, found) == (tmp_path / "run", [])


def test_a_run_folder_tells_its_recipe_and_what_its_last_start_was_told(tmp_path: Path) -> None:
    file = write(tmp_path)
    run = tmp_path / "elsewhere"
    with CourseLog(run) as course:
        for steps in (5, 9):
            began = Began(
                at=0.0,
                pid=1,
                created=0.0,
                argv=[],
                recipe=str(file),
                overrides=[f"run.steps={steps}"],
            )
            course.began(began)
    patient, found = _patient(run, [])
    assert patient.setup.recipe.shared.run.steps == 9
    assert (patient.setup.run, found) == (run, [])


def test_what_cannot_be_read_is_a_problem_and_the_machine_is_looked_at_all_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "broken.toml").write_text("[run", encoding="utf-8")
    (tmp_path / "console").mkdir()
    (tmp_path / "console/course.jsonl").write_text("no json\n", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    for given in ("missing.toml", "broken.toml", ".", "empty"):
        patient, (found,) = _patient(tmp_path / given, [])
        assert patient.setup is None
        assert found.level == "problem"


def test_a_setting_without_a_recipe_is_refused_and_not_left_out(tmp_path: Path) -> None:
    for given in ([], [str(tmp_path)]):
        told = CliRunner().invoke(app, ["doctor", *given, "--set", "run.steps=7"])
        assert told.exit_code == 2
        assert "it belongs to a recipe" in told.output


def write(folder: Path) -> Path:
    file = folder / "recipe.toml"
    file.write_text(to_toml(TABLES), encoding="utf-8")
    return file
