"""Statuses of tests, and which of two counts."""

from __future__ import annotations

import re
from collections.abc import Iterable

PASSED, SKIPPED, XFAIL, XPASS = "PASSED", "SKIPPED", "XFAIL", "XPASS"
ERROR, FAILED, CONFLICT = "ERROR", "FAILED", "CONFLICT"

_ORDER = (PASSED, SKIPPED, XFAIL, XPASS, ERROR, FAILED, CONFLICT)
"""As pytest orders its summary. The readers of the sets take the last line about a test. In a log
that nothing forged, that is the highest of these."""
_COLOUR = re.compile(r"\x1b\[[\d;]{0,20}m")

Found = tuple[str, str]
"""A test's name, and its status."""


def merged(found: Iterable[Found]) -> dict[str, str]:
    """Status by test. The highest counts of two."""
    statuses: dict[str, str] = {}
    for test, status in found:
        statuses[test] = max(statuses.get(test, status), status, key=_ORDER.index)
    return statuses


def plain_lines(output: str) -> list[str]:
    """The lines without colour codes, and without blanks at their ends."""
    return [line.rstrip() for line in _COLOUR.sub("", output).splitlines()]
