"""The short test summary of pytest, in which `-rA` names each test.

    ============ short test summary info ============
    PASSED tests/test_a.py::test_b
    FAILED tests/test_a.py::test_c - assert 1 == 2
    =========== 1 failed, 1 passed in 0.57s ===========

The last whole summary counts. What a test printed stands before it, also where that is a summary of
a pytest inside of the test. Code that runs after pytest can print a later one. So a failure of an
earlier summary stands for each test that the last one names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolsvc.tools.swe.verifying.logs.statuses import plain_lines

_HEADER = "short test summary info"
_COUNTS = re.compile(
    r"(?:no tests (?:ran|run)|\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+ ?s(?:econds)?(?: \([\d:]+\))?"
)
_FAILED = ("FAILED ", "ERROR ")
_LONGEST_RULE = 400
"""Characters of a line that may be a rule across the terminal."""
STATUSES = ("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL")


def summary_of(output: str) -> list[str]:
    """Lines of the last whole summary, after the failures of the same tests in earlier ones; none
    if the log breaks off before its end."""
    summaries = list(_whole_summaries(plain_lines(output)))
    if not summaries:
        return []
    *earlier, last = summaries
    named = {_name(line) for line in last}
    failed = (line for lines in earlier for line in lines if line.startswith(_FAILED))
    return [*(line for line in failed if _name(line) in named), *last]


def _whole_summaries(lines: list[str]) -> Iterator[list[str]]:
    begin: int | None = None
    for at, line in enumerate(lines):
        if _title(line) == _HEADER:
            begin = at + 1
        elif begin is not None and _is_end(line):
            yield lines[begin:at]
            begin = None


def _name(line: str) -> str:
    """The test's name up to its first blank."""
    return line.partition(" ")[2].partition(" ")[0]


def progress_of(output: str) -> list[str]:
    """Lines of `pytest -v` before the first report about a test; none if the log breaks off."""
    lines = plain_lines(output)
    if not any(map(_is_end, lines)):
        return []
    begin = next((at for at, line in enumerate(lines) if _is_start(line)), None)
    if begin is None:
        return []
    end = next((at for at in range(begin + 1, len(lines)) if _title(lines[at])), len(lines))
    return lines[begin + 1 : end]


def _is_start(line: str) -> bool:
    return _title(line) == "test session starts"


def _is_end(line: str) -> bool:
    title = _title(line)
    return title is not None and _COUNTS.fullmatch(title) is not None


def _title(line: str) -> str | None:
    """The text in a rule of equality signs."""
    if len(line) > _LONGEST_RULE or not (line.startswith("=") and line.endswith("=")):
        return None
    return line.strip("=").strip() or None
