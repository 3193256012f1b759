"""The two tiers of tests, and the slices of the slow one.

Invariants
- Every test has one tier, `quick` or `slow`. A test's own mark names it, else its module's
  (`pytestmark = pytest.mark.slow`), else a folder in `QUICK_FOLDERS`. A module with a test that has
  none is an error of collection, which fails the run and gives the line to write.
- A slice consists of whole files, so that their fixtures start once. The slice of a file follows
  from its path alone: a new file moves no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable
from pathlib import PurePosixPath

import pytest

SLICES = 8
SALT = "14938"
"""Part of the hash, chosen so that all slices take about as long: see tests/run.py."""
TIERS = ("quick", "slow")
QUICK_FOLDERS = ("tests/unit/", "tests/golden/")
TIER = pytest.StashKey[str]()


def slice_of(file: str) -> int:
    """The slice of a file, 0 to 7, from its path in the repository, such as
    `tests/chaos/test_kill.py`."""
    digest = hashlib.sha256(f"{SALT}{PurePosixPath(file)}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % SLICES


def tier_of(test: str, own: Iterable[str], module: Iterable[str]) -> str:
    """The tier of a test, from its node id, the names of its own marks (its parameters' included)
    and of its module's marks. Its own mark comes before the module's, then the folder.

    Raises ValueError if nothing names a tier, or if test or module name both.
    """
    file = test.partition("::")[0]
    for marks in (own, module):
        named = {mark for mark in marks if mark in TIERS}
        if len(named) == 2:
            raise ValueError(f"{test} is marked quick and slow: remove one of the two in {file}")
        if named:
            return named.pop()
    if file.startswith(QUICK_FOLDERS):
        return "quick"
    raise ValueError(
        f"{test} names no tier: write `pytestmark = pytest.mark.quick` or `pytest.mark.slow` below "
        f"the imports of {file} (slow: starts SGLang, ranks with torch, or takes over 10 s)"
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
            own = {mark.name for mark in item.own_markers}
            module = {mark.name for mark in item.iter_markers()} - own
            try:
                item.stash[TIER] = tier_of(item.nodeid, own, module)
            except ValueError as mistake:
                report.outcome, report.longrepr, report.result = "failed", str(mistake), []
                break
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
            if item.stash[TIER] == "slow" and slice_of(item.nodeid.partition("::")[0]) != wanted
        }
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
