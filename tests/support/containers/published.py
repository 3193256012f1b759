"""File trees of images in the layout of published sets, made of this machine's Debian packages.

R2E-Gym has /testbed with a virtual environment and run_tests.sh, and /r2e_tests. SWE-bench has a
conda environment, and SWE-bench Pro has /app, whose git history holds the tests.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.repository import BUGGY, FIXED, commit, git
from tests.support.swe_rows import HIDDEN_TESTS, VISIBLE_TESTS

CONDA = "opt/miniconda3/envs/testbed"


def repository(folder: Path) -> tuple[str, str]:
    """The commits with the bug, which is checked out, and with fix and tests."""
    (folder / "tests").mkdir(parents=True)
    (folder / "tests/__init__.py").touch()
    (folder / "tests/test_bill.py").write_text(VISIBLE_TESTS, encoding="utf-8")
    (folder / "bill.py").write_text(BUGGY, encoding="utf-8")
    git(folder, "init", "-q")
    buggy = commit(folder, "Split bills")
    (folder / "bill.py").write_text(FIXED, encoding="utf-8")
    (folder / "tests/test_bill.py").write_text(HIDDEN_TESTS, encoding="utf-8")
    fixed = commit(folder, "Nobody pays less than all")
    git(folder, "checkout", "-q", buggy)
    return buggy, fixed


def r2e_tree(root: Path, packages: Path) -> Path:
    bed = root / "testbed"
    repository(bed)
    library = next(Path("/usr/lib").glob("python3.*/os.py")).parent.name
    (bed / ".venv/bin").mkdir(parents=True)
    (bed / ".venv/bin/python").symlink_to("/usr/bin/python3")
    (bed / ".venv/pyvenv.cfg").write_text("home = /usr/bin\n", encoding="utf-8")
    (bed / ".venv/lib" / library).mkdir(parents=True)
    shutil.copytree(packages, bed / ".venv/lib" / library / "site-packages")
    (bed / ".venv/.gitignore").write_text("*\n", encoding="utf-8")
    (bed / "run_tests.sh").write_text(
        "PYTHONWARNINGS='ignore::UserWarning' .venv/bin/python -W ignore -m pytest -rA r2e_tests",
        encoding="utf-8",
    )
    (root / "r2e_tests").mkdir()
    (root / "r2e_tests/__init__.py").touch()
    (root / "r2e_tests/test_1.py").write_text(HIDDEN_TESTS, encoding="utf-8")
    return root


def conda_tree(root: Path, packages: Path, folder: str) -> tuple[Path, str]:
    """And the commit whose tests are hidden."""
    _, fixed = repository(root / folder)
    programs = root / CONDA / "bin"
    programs.mkdir(parents=True)
    (root / CONDA / "conda-meta").mkdir()
    (root / CONDA / "conda-meta/history").touch()
    shutil.copytree(packages, root / CONDA / "packages")
    for name, words in (("python", ""), ("python3", ""), ("pytest", "-m pytest ")):
        finds = f"export PYTHONPATH=/{CONDA}/packages:.:$PYTHONPATH"
        script = f'#!/bin/bash\n{finds}\nexec /usr/bin/python3 {words}"$@"\n'
        (programs / name).write_text(script, encoding="utf-8")
        (programs / name).chmod(0o755)
    return root, fixed
