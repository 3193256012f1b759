"""The tiers of tests: every test has one, and eight commits run every slow test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.run import slice_of_commit
from tests.support.tiers import SLICES, slice_of, tier_of

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
CONFTEST = "from tests.conftest import pytest_addoption, pytest_configure\n"
MODULE = "import pytest\npytestmark = pytest.mark.{}\ndef test_one(): pass\n"


@pytest.mark.parametrize(
    ("test", "own", "module", "tier"),
    [
        ("tests/unit/test_a.py::test_b", (), (), "quick"),
        ("tests/golden/test_a.py::test_b[1]", ("parametrize",), (), "quick"),
        ("tests/unit/test_a.py::test_b", ("slow", "alone"), (), "slow"),
        ("tests/integration/test_a.py::test_b", (), ("quick", "timeout"), "quick"),
        ("tests/chaos/test_a.py::test_b", ("quick",), ("slow",), "quick"),
        ("tests/integration/test_a.py::test_b[1]", ("parametrize", "slow"), ("quick",), "slow"),
    ],
)
def test_the_nearest_mark_names_the_tier_else_the_folder(
    test: str, own: tuple[str, ...], module: tuple[str, ...], tier: str
) -> None:
    assert tier_of(test, own, module) == tier


@pytest.mark.parametrize(
    ("test", "own", "module", "named"),
    [
        ("tests/integration/test_a.py::test_b", ("timeout",), (), "pytestmark = pytest.mark.quick"),
        ("tests/new/test_a.py::test_b", (), ("asyncio",), "tests/new/test_a.py"),
        ("tests/united/test_a.py::test_b", (), (), "names no tier"),
        ("tests/unit/test_a.py::test_b", ("slow", "quick"), (), "quick and slow"),
        ("tests/unit/test_a.py::test_b", (), ("slow", "quick"), "quick and slow"),
    ],
)
def test_no_tier_and_two_tiers_are_refused(
    test: str, own: tuple[str, ...], module: tuple[str, ...], named: str
) -> None:
    with pytest.raises(ValueError, match="tests/") as raised:
        tier_of(test, own, module)
    assert named in str(raised.value)


def run_pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    """(exit code, output) of the tests in a folder, under this project's plugins."""
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", f"--rootdir={folder}", "-c", "/dev/null",
         "-p", "no:cacheprovider", "--import-mode=importlib", *arguments, str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_with_a_test_of_no_tier_fails(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_slow.py").write_text(MODULE.format("slow"), encoding="utf-8")
    (tmp_path / "test_new.py").write_text("def test_one(): pass\n", encoding="utf-8")
    code, said = run_pytest(tmp_path, "-n", workers)
    assert code != 0
    assert "test_new.py::test_one names no tier: write `pytestmark" in said
    assert "1 error" in said


def test_a_slice_runs_the_quick_files_and_its_own_slow_ones(tmp_path: Path) -> None:
    slow = [f"test_{number}.py" for number in range(40)]
    for name in slow:
        (tmp_path / name).write_text(MODULE.format("slow"), encoding="utf-8")
    (tmp_path / "test_quick.py").write_text(MODULE.format("quick"), encoding="utf-8")
    number = slice_of(slow[0])
    code, said = run_pytest(tmp_path, "-q", "--collect-only", "--slice", str(number))
    assert code == 0, said
    collected = {line.partition("::")[0] for line in said.splitlines() if "::test_one" in line}
    assert collected == {"test_quick.py", *(one for one in slow if slice_of(one) == number)}


def test_slices_cover_all_numbers_and_depend_on_the_path_alone() -> None:
    files = sorted(
        str(file.relative_to(ROOT)) for file in (ROOT / "tests/integration").rglob("test_*.py")
    )
    assert {slice_of(file) for file in files} == set(range(SLICES))
    assert slice_of("tests/chaos/test_resume.py") == slice_of("tests//chaos/test_resume.py")


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of eleven commits."""
    folder = tmp_path / "whole"
    folder.mkdir()
    git(folder, "init", "-q")
    for number in range(11):
        git(folder, "commit", "-q", "--allow-empty", "-m", str(number))
    return folder


def test_the_number_of_commits_names_the_slice(repository: Path) -> None:
    assert slice_of_commit(repository) == (3, "11 commits modulo 8")


def test_without_its_history_a_tree_runs_slice_0(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "3", f"file://{repository}", "shallow")
    assert slice_of_commit(tmp_path / "shallow") == (0, "the clone is shallow")
    (repository / "unpacked").mkdir()
    assert slice_of_commit(repository / "unpacked") == (0, "the tree is not a git checkout")
    git(tmp_path, "init", "-q", "empty")
    assert slice_of_commit(tmp_path / "empty") == (0, "there is no commit")


def test_without_git_a_tree_runs_slice_0(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slice_of_commit(repository) == (0, "git is not installed")
