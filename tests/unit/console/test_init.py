"""What `toolwright init` lists and copies, and what it never does."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from console.cli import app
from console.commands import init
from toolwright.process.packaged import packaged


def typed(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["init", *map(str, words)])
    return done.exit_code, done.output


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one recipe, in which somebody has trained."""
    folder = tmp_path / "package/recipes/mine"
    for name in ("run/warm", "run-ablate/base", "models/big", "__pycache__", ".cache", "kept"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text("x", encoding="utf-8")
    (folder / "recipe.toml").write_text(
        '[run]\nfolder = "run"\n[sft]\noutput = "run/warm"\n'
        '[[console.prepare]]\nname = "big"\nrun = ["x"]\nmakes = "models/big"\n',
        encoding="utf-8",
    )
    (folder / "README.md").write_text("# Mine\n\nIt does\nthis.\n\nMore.\n", encoding="utf-8")
    (folder.parent / "presets").mkdir()
    (folder.parent / "presets/grpo.toml").write_text("", encoding="utf-8")
    monkeypatch.setattr(init, "packaged", lambda name: tmp_path / "package" / name)
    return folder


def test_every_recipe_of_the_package_is_listed() -> None:
    code, said = typed()
    assert code == 0
    recipes = packaged("recipes")
    files = [file for name in init.RECIPES for file in recipes.glob(f"**/{name}")]
    names = {str(file.parent.relative_to(recipes)) for file in files}
    listed = [line.partition(" ")[0] for line in said.splitlines() if line[:1].strip()]
    assert set(listed) == names and listed[0] == "starter"
    assert all(line.split(maxsplit=1)[1:] for line in said.splitlines() if line[:1].strip())


def test_a_recipe_of_a_family_is_named_by_its_path(recipes: Path, tmp_path: Path) -> None:
    for folder in ("family/math", "mine/part"):
        (recipes.parent / folder).mkdir(parents=True)
        (recipes.parent / folder / "recipe.toml").write_text("", encoding="utf-8")
    (recipes.parent / "family/math/README.md").write_text(
        "# Math\n\nIt counts.\n", encoding="utf-8"
    )
    listed = typed()[1].splitlines()
    assert [line for line in listed if line[:1].strip()] == [
        "family/math  It counts.",
        "mine         It does this.",
    ], "what lies in a recipe's folder is part of it"
    assert "did you mean 'family/math'?" in typed("math", tmp_path / "new")[1]
    assert typed("family/math", tmp_path / "new")[0] == 0
    assert {file.name for file in (tmp_path / "new").iterdir()} == {"README.md", "recipe.toml"}


def test_a_copy_has_nothing_that_a_run_made(recipes: Path, tmp_path: Path) -> None:
    code, said = typed("mine", tmp_path / "new/my run")
    assert code == 0
    copied = {str(p.relative_to(tmp_path / "new/my run")) for p in tmp_path.glob("new/my run/**/*")}
    assert copied == {"README.md", "recipe.toml", "kept", "kept/file", "models"}
    assert f"toolwright run '{tmp_path}/new/my run/recipe.toml'" in said


def test_a_recipe_without_a_demonstration_is_one_too(recipes: Path, tmp_path: Path) -> None:
    (recipes / "recipe.toml").rename(recipes / "chat.toml")
    code, said = typed("mine", tmp_path / "new")
    assert code == 0
    assert f"toolwright run {tmp_path}/new/chat.toml" in said


def test_a_copy_can_be_changed_where_the_package_is_read_only(
    recipes: Path, tmp_path: Path
) -> None:
    (recipes / "recipe.toml").chmod(0o444)
    assert typed("mine", tmp_path / "new")[0] == 0
    assert (tmp_path / "new/recipe.toml").stat().st_mode & 0o200


def test_an_empty_folder_is_filled_and_another_one_left_alone(
    recipes: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert typed("mine", tmp_path / "empty")[0] == 0
    (tmp_path / "empty/README.md").write_text("my own words", encoding="utf-8")
    code, said = typed("mine", tmp_path / "empty")
    assert (code, said) == (2, f"toolwright: {tmp_path}/empty is not empty: name a new folder\n")
    assert (tmp_path / "empty/README.md").read_text(encoding="utf-8") == "my own words"


@pytest.mark.parametrize("name", ["presets", "../recipes/mine", "", "mine/"])
def test_a_name_that_is_none_is_refused(recipes: Path, tmp_path: Path, name: str) -> None:
    code, said = typed(name, tmp_path / "new")
    assert code == 2
    assert f"there is no recipe {name!r}" in said and "there are mine" in said
    assert not (tmp_path / "new").exists()


def test_a_file_is_no_folder(recipes: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    assert typed("mine", tmp_path / "file")[0] == 2
    code, said = typed("mine", tmp_path / "file/new")
    assert code == 1 and f"{tmp_path}/file/new cannot be written" in said
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_what_a_recipe_uses_of_another_one_is_named(tmp_path: Path) -> None:
    code, said = typed("outside", tmp_path / "mine")
    assert code == 0
    assert f"toolwright init calculator {tmp_path}/calculator " in said
    typed("calculator", tmp_path / "calculator")
    assert "init calculator" not in typed("outside", tmp_path / "again")[1]
    assert (tmp_path / "mine/template.jinja").is_file()
