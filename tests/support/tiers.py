"""The two tiers of tests, and the slices of the slow one.

Invariants
- Every test has exactly one tier: `quick` or `slow`. A module with a test that has none or both is
  an error of collection, which fails the run. The message gives the file and the line to write.
- A test of a folder in `QUICK_FOLDERS` that names no tier is quick. Elsewhere the module names it
  (`pytestmark = pytest.mark.slow`), or each of its tests does.
- A slice consists of whole files, so that their fixtures start once. The slice of a file follows
  from its path alone: a new file moves no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable
from pathlib import PurePosixPath

import pytest

SLICES = 8
SALT = "0"
"""Part of the hash, chosen so that all slices take about as long: see tests/run.py."""
TIERS = ("quick", "slow")
QUICK_FOLDERS = ("tests/unit/", "tests/golden/")


def slice_of(file: str) -> int:
    """The slice of a file, 0 to 7, from its path in the repository, such as
    `tests/chaos/test_kill.py`."""
    digest = hashlib.sha256(f"{SALT}{PurePosixPath(file)}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % SLICES


def tier_of(test: str, marks: Iterable[str]) -> str:
    """The tier of a test, from its node id and the names of its marks.

    Raises ValueError if its module's folder has no tier and it names none, or if it names both.
    """
    file = test.partition("::")[0]
    named = sorted({mark for mark in marks if mark in TIERS})
    if len(named) == 2:
        raise ValueError(
            f"{test} is marked quick and slow: mark each test of {file}, or the module, not both"
        )
    if named:
        return named[0]
    if file.startswith(QUICK_FOLDERS):
        return "quick"
    raise ValueError(
        f"{test} names no tier: write `pytestmark = pytest.mark.quick` or `pytest.mark.slow` below "
        f"the imports of {file} (slow: starts SGLang, ranks with torch, or takes over 10 s of CPU)"
    )


class Tiers:
    """A pytest plugin: checks the tiers, and with `--slice` leaves out the other seven slices."""

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self,
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        for item in report.result or ():
            if not isinstance(item, pytest.Item):
                continue
            try:
                tier = tier_of(item.nodeid, (mark.name for mark in item.iter_markers()))
            except ValueError as mistake:
                report.outcome, report.longrepr, report.result = "failed", str(mistake), []
                break
            if item.get_closest_marker(tier) is None:
                item.add_marker(tier)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        wanted = config.getoption("--slice")
        if wanted is None:
            return
        left_out = {
            item
            for item in items
            if item.get_closest_marker("slow")
            and slice_of(item.nodeid.partition("::")[0]) != wanted
        }
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
