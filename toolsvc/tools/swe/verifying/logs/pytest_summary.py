"""The short test summary of pytest, in which `-rA` names each test.

    ============ short test summary info ============
    PASSED tests/test_a.py::test_b
    FAILED tests/test_a.py::test_c - assert 1 == 2
    =========== 1 failed, 1 passed in 0.57s ===========

The last whole summary counts. What a test printed stands before it, also where that is a summary of
a pytest inside of the test.
"""

from __future__ import annotations

import re

from toolsvc.tools.swe.verifying.logs.statuses import plain_lines

_HEADER = "short test summary info"
_COUNTS = re.compile(
    r"(?:no tests (?:ran|run)|\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+ ?s(?:econds)?(?: \([\d:]+\))?"
)
_LONGEST_RULE = 400
"""Characters of a line that may be a rule across the terminal."""
STATUSES = ("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL")


def summary_of(output: str) -> list[str]:
    """Lines of the last whole summary; none if the log breaks off before its end."""
    lines = plain_lines(output)
    end = next((at for at in reversed(range(len(lines))) if _is_end(lines[at])), 0)
    begin = next((at for at in reversed(range(end)) if _title(lines[at]) == _HEADER), None)
    return [] if begin is None else lines[begin + 1 : end]


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
