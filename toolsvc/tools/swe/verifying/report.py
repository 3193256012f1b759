"""What a test runner's output says of each test; pure.

    pytest     lines of `pytest -rA`:      PASSED tests/test_a.py::test_b
    unittest   lines of `unittest -v`:     test_b (test_a.TestA.test_b) ... ok

A test that is reported twice, with different statuses, has CONFLICT: what runs in the tests' own
process can print such a line, but not take back the runner's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

Report = Literal["pytest", "unittest"]

PASSED = "PASSED"
CONFLICT = "CONFLICT"

_PYTEST = re.compile(r"^(PASSED|FAILED|ERROR|XPASS|XFAIL) (\S+?::.+?)(?: - .*)?$", re.MULTILINE)
_UNITTEST = re.compile(
    r"^(\w+) \(([\w.]+)\)(?:\n(?!\w+ \().*?)? \.\.\. "
    r"(ok|FAIL|ERROR|skipped|expected failure|unexpected success)\b",
    re.MULTILINE,
)
_WORDS = {
    "ok": PASSED,
    "FAIL": "FAILED",
    "ERROR": "ERROR",
    "skipped": "SKIPPED",
    "expected failure": "XFAIL",
    "unexpected success": "XPASS",
}


def read_report(report: Report, output: str) -> dict[str, str]:
    """Status by test, with pytest's words. Tests of unittest are named module.Class.method."""
    found: dict[str, str] = {}
    for test, status in _pytest(output) if report == "pytest" else _unittest(output):
        found[test] = status if found.get(test, status) == status else CONFLICT
    return found


def _pytest(output: str) -> Iterator[tuple[str, str]]:
    for status, test in _PYTEST.findall(output):
        yield test.strip(), status


def _unittest(output: str) -> Iterator[tuple[str, str]]:
    for method, place, word in _UNITTEST.findall(output):
        # Before Python 3.11 the place is that of the class alone.
        test = place if place.endswith(f".{method}") else f"{place}.{method}"
        yield test, _WORDS[word]
