"""What the wheel holds, and that it works outside of the checkout."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from tests.integration.packaging.conftest import ROOT, Environment
from tests.support.policy import write_policy
from toolwright.process.own_packages import OURS

pytestmark = pytest.mark.slow

TOP = set(OURS)


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_it_takes_the_names_that_the_docs_say(names: list[str]) -> None:
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == TOP
    page = (ROOT / "docs/start/installing.md").read_text(encoding="utf-8")
    for name in TOP:
        assert f"`{name}`" in page


def test_nothing_of_the_workshop_is_in_it(names: list[str]) -> None:
    folders = r"tests|node_modules|__pycache__|runs?|(?<!toolwright/recipe/)models|\.venv[^/]*"
    unwanted = rf"(^|/)({folders})/|\.pyc$|conftest"
    assert not [name for name in names if re.search(unwanted, name)]


@pytest.mark.parametrize(
    "folder", ["recipes", "examples", "deploy/sglang-cpu", "deploy/launch", "bench/reference"]
)
def test_what_is_no_python_lies_in_the_package(names: list[str], folder: str) -> None:
    mine = {
        file.relative_to(ROOT).as_posix() for file in (ROOT / folder).rglob("*") if file.is_file()
    }
    kept = {n for n in mine if not re.search(r"/(run|models|node_modules|__pycache__)/|lock", n)}
    assert kept <= {name.removeprefix("toolwright/") for name in names}


def test_templates_and_pins_are_in_it(names: list[str]) -> None:
    for folder in ("console", "bench"):
        for template in (ROOT / folder).rglob("*.jinja"):
            assert template.relative_to(ROOT).as_posix() in names
    assert "toolwright/constraints/sampler-cpu.txt" in names
    assert "toolwright/deploy/setup/setup.sh" in names


def test_a_recipe_is_copied_and_found_in_order(whole: Environment) -> None:
    assert "starter" in whole("toolwright", "init").stdout
    done = whole("toolwright", "init", "starter", "my-run")
    assert done.returncode == 0, done.stderr
    assert "toolwright run my-run/recipe.toml" in done.stdout
    policy = whole.work / "policy"
    write_policy(policy)
    checked = whole("engine", "check", "my-run/recipe.toml", "--set", f"policy.model={policy}")
    assert "the recipe is in order" in checked.stdout, checked.stderr
    assert str(ROOT) not in checked.stdout


def test_a_preset_is_found(whole: Environment) -> None:
    file = whole.work / "mine.toml"
    file.write_text('extends = ["presets/nothing.toml"]\n', encoding="utf-8")
    done = whole("engine", "check", str(file))
    assert done.returncode == 1
    assert "presets/grpo.toml" in done.stderr


def test_the_launcher_knows_where_it_looks(whole: Environment) -> None:
    (serve,) = whole.folder.glob("lib/python*/site-packages/toolwright/deploy/sglang-cpu/serve.py")
    model = whole.work / "model"
    write_policy(model)
    done = whole("python", str(serve), str(model), "31999", XDG_DATA_HOME=str(whole.work))
    assert done.returncode == 2
    assert f"{whole.work}/toolwright/sglang-cpu/bin/python" in done.stderr
    assert "toolwright install-sampler" in done.stderr


def test_a_sampler_is_not_installed_into_a_folder_that_holds_something(whole: Environment) -> None:
    (whole.work / "precious").mkdir()
    (whole.work / "precious/thesis.tex").write_text("years", encoding="utf-8")
    done = whole("toolwright", "install-sampler", "precious")
    assert done.returncode == 1
    assert "precious holds something else" in done.stderr
    assert re.search(r"sglang==\S+ with \d+ packages", done.stdout)
    assert [file.name for file in (whole.work / "precious").iterdir()] == ["thesis.tex"]
