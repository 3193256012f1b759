"""Runs all tests: first those that wait, side by side, then those that measure time, by themselves.

A machine that others use can stand still for a second within any test. So what failed is run once
more by itself, where it is no more than `FEW` tests: what fails again fails the run, and what
passes is named at the end, to be mended. `python tests/run.py [WORKERS]`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).parents[1]
FAILED = HOME / ".pytest_cache/v/cache/lastfailed"
FEW = 8
"""More than that is no bad luck."""
TESTS_FAILED = 1
"""pytest's exit code for it; any other but 0 says that the run itself broke off."""


def pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=HOME).returncode


def twice(*arguments: str) -> tuple[int, list[str]]:
    """pytest's exit code, and what failed beside other tests and passed by itself."""
    FAILED.unlink(missing_ok=True)
    code = pytest(*arguments)
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if code != TESTS_FAILED or not 0 < len(failed) <= FEW:
        return code, []
    print(f"a second look, by themselves, at {len(failed)} that failed", flush=True)
    code = pytest(*failed)
    return code, failed if code == 0 else []


def main(workers: str = "3") -> int:
    waiting = ["-n", workers, "--dist", "loadfile", "--no-loadscope-reorder", "-m", "not alone"]
    code, unlucky = twice(*waiting)
    if code == 0:
        measured = sorted(
            str(file.relative_to(HOME))
            for file in (HOME / "tests").rglob("test_*.py")
            if "mark.alone" in file.read_text()
        )
        code, more = twice("-m", "alone", *measured)
        unlucky += more
    for test in unlucky:
        print(f"failed at first and passed by itself, so it leans on the clock: mend {test}")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
