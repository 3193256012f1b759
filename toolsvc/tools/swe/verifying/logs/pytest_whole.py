"""SWE-bench's format with whole names, blanks included, for astropy, scikit-learn and sphinx.

    PASSED tests/test_a.py::test_b[x y]      in the summary
    tests/test_a.py::test_b[x y] PASSED      in the progress of `pytest -v`, before -rA existed

The text after " - " of a failed or broken test is its message. An expected failure counts as
passed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolsvc.tools.swe.verifying.logs.pytest_summary import STATUSES, progress_of, summary_of
from toolsvc.tools.swe.verifying.logs.statuses import ERROR, FAILED, PASSED, XFAIL, Found, merged

_PERCENT = re.compile(r"\[ {0,2}\d{1,3}%\]$")


def read_whole(output: str) -> dict[str, str]:
    return merged((*_progress(output), *_summary(output)))


def _summary(output: str) -> Iterator[Found]:
    for line in summary_of(output):
        status, _, name = line.partition(" ")
        if status in (FAILED, ERROR):
            name = name.partition(" - ")[0]
        if status in STATUSES and name.strip() and not name.startswith("["):
            yield name.strip(), PASSED if status == XFAIL else status


def _progress(output: str) -> Iterator[Found]:
    for line in progress_of(output):
        name, _, status = _PERCENT.sub("", line).rstrip().rpartition(" ")
        if status in STATUSES and "::" in name:
            yield name.strip(), PASSED if status == XFAIL else status
