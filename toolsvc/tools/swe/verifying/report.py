"""What a test runner's output says of each test; pure.

    pytest     lines of `pytest -rA`:      PASSED tests/test_a.py::test_b
    unittest   lines of `unittest -v`:     test_b (test_a.TestA.test_b) ... ok

The other reports are the formats of published sets (`logs`). In the first two a test that is
reported twice, with different statuses, has CONFLICT: what runs in the tests' own process can print
such a line, but not take back the runner's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from toolsvc.tools.swe.verifying.logs.django import read_django
from toolsvc.tools.swe.verifying.logs.pytest_whole import read_whole
from toolsvc.tools.swe.verifying.logs.pytest_words import read_matplotlib, read_options, read_words
from toolsvc.tools.swe.verifying.logs.r2e import read_r2e
from toolsvc.tools.swe.verifying.logs.results import read_results
from toolsvc.tools.swe.verifying.logs.seaborn import read_seaborn
from toolsvc.tools.swe.verifying.logs.statuses import CONFLICT, PASSED
from toolsvc.tools.swe.verifying.logs.sympy import read_sympy

Report = Literal[
    "pytest", "unittest", "r2e", "pytest_words", "pytest_options", "pytest_whole", "matplotlib",
    "seaborn", "django", "sympy", "results", "reward_files",
]  # fmt: skip
REWARD_FILES: Report = "reward_files"
"""No report: the command writes the reward itself (`reward_files`)."""
FAILING = ("FAILED", "ERROR", CONFLICT)
PYTEST: tuple[Report, ...] = (
    "pytest", "r2e", "pytest_words", "pytest_options", "pytest_whole", "matplotlib", "seaborn",
)  # fmt: skip
"""Reports of pytest, which has to be given its settings file."""
_PUBLISHED: Mapping[Report, Callable[[str], dict[str, str]]] = {
    "r2e": read_r2e,
    "pytest_words": read_words,
    "pytest_options": read_options,
    "pytest_whole": read_whole,
    "matplotlib": read_matplotlib,
    "seaborn": read_seaborn,
    "django": read_django,
    "sympy": read_sympy,
    "results": read_results,
}

# Matched line by line: a search of a whole log of 16 MiB holds the interpreter for a second.
_PYTEST = re.compile(r"^(PASSED|FAILED|ERROR|XPASS|XFAIL) (\S+?::.+?)(?: - .*)?$")
_UNITTEST = re.compile(
    r"^(\w+) \(([\w.]+)\)(?:\n(?!\w+ \().*?)? \.\.\. "
    r"(ok|FAIL|ERROR|skipped|expected failure|unexpected success)\b"
)
_WORDS = {
    "ok": PASSED,
    "FAIL": "FAILED",
    "ERROR": "ERROR",
    "skipped": "SKIPPED",
    "expected failure": "XFAIL",
    "unexpected success": "XPASS",
}


def hides_a_failure(report: Report, code: int | None, statuses: Mapping[str, str]) -> bool:
    """Whether a published format reports no failed test of a runner that ended with 1, which says
    that there is one. SWE-bench's harness refuses such a log too: code under test printed it."""
    is_a_runners = report in _PUBLISHED and report != "results"
    return is_a_runners and code == 1 and not any(one in FAILING for one in statuses.values())


def read_report(report: Report, output: str) -> dict[str, str]:
    """Status by test, with pytest's words. Tests of unittest are named module.Class.method."""
    if report in _PUBLISHED:
        return _PUBLISHED[report](output)
    found: dict[str, str] = {}
    for test, status in _pytest(output) if report == "pytest" else _unittest(output):
        found[test] = status if found.get(test, status) == status else CONFLICT
    return found


def _pytest(output: str) -> Iterator[tuple[str, str]]:
    for found in map(_PYTEST.match, output.split("\n")):
        if found is not None:
            yield found[2].strip(), found[1]


def _unittest(output: str) -> Iterator[tuple[str, str]]:
    lines = output.split("\n")
    for line, following in zip(lines, (*lines[1:], ""), strict=True):
        found = _UNITTEST.match(f"{line}\n{following}")
        if found is None:
            continue
        method, place, word = found.groups()
        # Before Python 3.11 the place is that of the class alone.
        test = place if place.endswith(f".{method}") else f"{place}.{method}"
        yield test, _WORDS[word]
