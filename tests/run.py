"""Runs the tests: first those that wait, side by side, then those that measure time, alone.

`python tests/run.py` runs the quick tier and one eighth of the slow tier. `--slice K` names the
eighth, and `--all` runs all tests.

The eighth is the number of commits modulo 8, so eight commits run every slow test. A tree without
its whole history (a shallow clone, an unpacked archive) runs slice 0. A slow file's slice is a hash
of its path (`slice_of` in tests/support/tiers.py): it is the same on every machine, and a new file
moves no other. The hash has a salt. Of 20,000 salts it is the one with which the slowest slice, by
measured seconds of the files, is fastest. Where one slice has grown too slow, split its slowest
file; the last lines of each run name the ten slowest.

A shared machine can stand still for a second within any test. So tests that failed run once more
alone, if there are no more than `FEW` of them. A second failure fails the run. A test that passes
then is named at the end: it depends on the clock and must be fixed in the same change.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.tiers import SLICES

HOME = Path(__file__).parents[1]
FAILED = HOME / ".pytest_cache/v/cache/lastfailed"
FEW = 3
"""More failures than that are not bad luck."""
TESTS_FAILED = 1
"""pytest's exit code for it; any other but 0 says that the run itself broke off."""


def pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=HOME).returncode


def twice(*arguments: str) -> tuple[int, list[str]]:
    """pytest's exit code, and what failed beside other tests and passed by itself."""
    FAILED.unlink(missing_ok=True)
    code = pytest(*arguments)
    failed = sorted(json.loads(FAILED.read_text(encoding="utf-8"))) if FAILED.exists() else []
    if code != TESTS_FAILED or not 0 < len(failed) <= FEW:
        return code, []
    print(f"a second look, by themselves, at {len(failed)} that failed", flush=True)
    code = pytest(*failed)
    return code, failed if code == 0 else []


def slice_of_commit(home: Path) -> tuple[int, str]:
    """The slice that the tree's newest commit runs, and the reason in words."""
    if shutil.which("git") is None:
        return 0, "git is not installed"

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=home, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    root = git("rev-parse", "--show-toplevel")
    if not root or Path(root).resolve() != home.resolve():
        return 0, "the tree is not a git checkout"
    if git("rev-parse", "--is-shallow-repository") != "false":
        return 0, "the clone is shallow"
    count = git("rev-list", "--count", "HEAD")
    if not count:
        return 0, "there is no commit"
    return int(count) % SLICES, f"{count} commits modulo {SLICES}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the tests.")
    parser.add_argument("--workers", default="3", help="test files side by side")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="both tiers, whole")
    which.add_argument(
        "--slice", type=int, choices=range(SLICES), help="this eighth of the slow tier"
    )
    given = parser.parse_args(arguments)
    if given.all:
        chosen = []
        print("tests: both tiers, whole", flush=True)
    else:
        number, why = (
            slice_of_commit(HOME) if given.slice is None else (given.slice, "as SLICE says")
        )
        chosen = ["--slice", str(number)]
        print(
            f"tests: the quick tier, and slice {number} of the slow tier's {SLICES} ({why}); "
            f"`make test SLICE={number}` runs the same, `make test-all` runs every test",
            flush=True,
        )
    waiting = ["-n", given.workers, "--dist", "loadfile", "--no-loadscope-reorder"]
    code, unlucky = twice(*waiting, "-m", "not alone", *chosen)
    if code == 0:
        measured = sorted(
            str(file.relative_to(HOME))
            for file in (HOME / "tests").rglob("test_*.py")
            if "mark.alone" in file.read_text(encoding="utf-8")
        )
        code, more = twice("-m", "alone", *chosen, *measured)
        unlucky += more
    for test in unlucky:
        print(
            f"failed at first and passed by itself: {test} depends on the clock, fix it in the "
            "same change"
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
