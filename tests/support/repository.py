"""A small repository with a bug, its history with the fix, and how a fix is verified."""

from __future__ import annotations

import subprocess
from pathlib import Path

BUGGY = '''\
"""Splits bills."""


def share(total, people):
    """What each pays, in cents; the first ones pay the rest."""
    each = total // people
    return [each] * people
'''
FIX = (
    "    return [each] * people\n",
    "    rest = total % people\n    return [each + (i < rest) for i in range(people)]\n",
)
FIXED = BUGGY.replace(*FIX)

TESTS = """\
import unittest

from bill import share


class TestShare(unittest.TestCase):
    def test_even(self):
        self.assertEqual(share(100, 4), [25] * 4)

    def test_one(self):
        self.assertEqual(share(7, 1), [7])
"""
HIDDEN_TESTS = (
    TESTS
    + """
    def test_rest(self):
        self.assertEqual(share(100, 3), [34, 33, 33])
"""
)
VERIFICATION = """\
command = "python3 -m unittest -v tests.test_bill"
report = "unittest"
seconds = {seconds}
fail_to_pass = ["tests.test_bill.TestShare.test_rest"]
pass_to_pass = ["tests.test_bill.TestShare.test_even", "tests.test_bill.TestShare.test_one"]
"""


def make_repository(folder: Path) -> tuple[str, str]:
    """In `folder`; the commits before and with the fix."""
    (folder / "tests").mkdir(parents=True)
    (folder / "README").write_text("bill splits bills.\n", encoding="utf-8")
    (folder / "tests" / "__init__.py").touch()
    (folder / "tests" / "test_bill.py").write_text(TESTS, encoding="utf-8")
    (folder / "bill.py").write_text(BUGGY.replace("cents", "euros"), encoding="utf-8")
    git(folder, "init", "-q")
    first = commit(folder, "Split bills")
    (folder / "bill.py").write_text(BUGGY, encoding="utf-8")
    buggy = commit(folder, "In cents")
    assert first != buggy
    (folder / "bill.py").write_text(FIXED, encoding="utf-8")
    (folder / "tests" / "test_bill.py").write_text(HIDDEN_TESTS, encoding="utf-8")
    return buggy, commit(folder, "Nobody pays less than all")


def make_verification(folder: Path, seconds: float = 60.0) -> None:
    (folder / "files" / "tests").mkdir(parents=True)
    (folder / "verification.toml").write_text(
        VERIFICATION.format(seconds=seconds), encoding="utf-8"
    )
    (folder / "files" / "tests" / "test_bill.py").write_text(HIDDEN_TESTS, encoding="utf-8")


def commit(folder: Path, message: str) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()
