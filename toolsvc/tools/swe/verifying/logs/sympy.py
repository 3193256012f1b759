"""SymPy's own runner (bin/test -C --verbose), as SWE-bench reads it. Names have no file.

    sympy/core/tests/test_basic.py[3]
    test_a ok
    test_b F
    test_c E                                                     [FAIL]
    ___________ sympy/core/tests/test_basic.py:test_b ___________
    =========== tests finished: 1 passed, 1 failed, 1 exceptions, in 0.10 seconds ===========

The code under test prints into the same stream. So a run with more passed tests than its last line
counts reports none of them, and neither does a run without that line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolsvc.tools.swe.verifying.logs.statuses import (
    CONFLICT,
    ERROR,
    FAILED,
    PASSED,
    Found,
    merged,
    plain_lines,
)

_FINISHED = re.compile(r"=+ tests finished: (?:(\d{1,9}) passed)?.{0,200}")
_WORDS = {"ok": PASSED, "F": FAILED, "E": ERROR}


def read_sympy(output: str) -> dict[str, str]:
    lines = [line.strip() for line in plain_lines(output)]
    counts = [int(end[1] or 0) for line in lines if (end := _FINISHED.fullmatch(line))]
    if not counts:
        return {}
    found = list(_found(lines))
    if sum(status == PASSED for _, status in found) > sum(counts):
        found = [(test, CONFLICT if status == PASSED else status) for test, status in found]
    return merged(found)


def _found(lines: list[str]) -> Iterator[Found]:
    for line in lines:
        if line.startswith("test_"):
            words = line.removesuffix("[FAIL]").removesuffix("[OK]").split()
            if len(words) > 1 and words[-1] in _WORDS:
                yield words[0], _WORDS[words[-1]]
        elif line.startswith("_") and (title := _title(line)):
            yield title, FAILED


def _title(line: str) -> str:
    """The test in a rule of underscores; "" if the line is another one."""
    left, title, right = line.split(" ") if line.count(" ") == 2 else ("", "", "")
    is_rule = not left.strip("_") and right != "" and not right.strip("_")
    file, _, test = title.rpartition(".py:")
    return title if is_rule and file and test else ""
