"""The results that a set's own parser writes, as SWE-bench Pro's and Nemotron's do.

    >>>>> results
    {"tests": [{"name": "a | works", "status": "PASSED"}, ...]}

The last such text is read. A text after the line that is not this JSON reports nothing.
"""

from __future__ import annotations

from toolsvc.tools.swe.verifying.logs.statuses import (
    CONFLICT,
    ERROR,
    FAILED,
    PASSED,
    SKIPPED,
    merged,
)
from toolwright.json_data import read_exact

MARK = ">>>>> results\n"
_KNOWN = (PASSED, FAILED, ERROR, SKIPPED)


def read_results(output: str) -> dict[str, str]:
    _, mark, text = output.rpartition(MARK)
    if not mark:
        return {}
    try:
        tests = read_exact(text)["tests"]
        return merged(
            (str(one["name"]), one["status"] if one["status"] in _KNOWN else CONFLICT)
            for one in tests
        )
    except (ValueError, KeyError, TypeError):
        return {}
