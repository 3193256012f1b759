"""SWE-bench's format for seaborn: passed and failed tests alone, of summary and progress.

PASSED tests/test_a.py::test_b           in the summary
tests/test_a.py::test_b PASSED [ 10%]    in the progress of `pytest -v`
"""

from __future__ import annotations

from collections.abc import Iterator

from toolsvc.tools.swe.verifying.logs.pytest_summary import progress_of, summary_of
from toolsvc.tools.swe.verifying.logs.statuses import FAILED, PASSED, Found, merged


def read_seaborn(output: str) -> dict[str, str]:
    return merged(_found(output))


def _found(output: str) -> Iterator[Found]:
    for line in progress_of(output):
        name, *words = line.split(maxsplit=2)[:2] or [""]
        if "::" in name and words and words[0] in (PASSED, FAILED):
            yield name, words[0]
    for line in summary_of(output):
        status, *words = line.split(maxsplit=2)[:2] or [""]
        if status in (PASSED, FAILED) and words:
            yield words[0], status
