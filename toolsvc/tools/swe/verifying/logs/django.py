"""Django's own runner (tests/runtests.py --verbosity 2), as SWE-bench reads it.

    test_b (app.tests.TestA) ... ok
    test_c (app.tests.TestA)
    What it does, in a sentence. ... FAIL       the name is the sentence
    test_d (app.tests.TestA) ... Internal Server Error: /x/
    ok                                          after output of the code under test
    FAIL: test_c (app.tests.TestA)
    Ran 3 tests in 1.234s

The code under test prints into the same stream. So a run with more passed tests than it ran reports
none of them, and neither does a run that does not end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolsvc.tools.swe.verifying.logs.statuses import (
    CONFLICT,
    ERROR,
    FAILED,
    PASSED,
    SKIPPED,
    Found,
    merged,
    plain_lines,
)

_DOTS = " ... "
_SKIPPED = " ... skipped"
_RAN = re.compile(r"Ran (\d{1,9}) tests? in [\d.]+s")
_WORDS = {
    "ok": PASSED,
    "OK": PASSED,
    "FAIL": FAILED,
    "ERROR": ERROR,
    "expected failure": PASSED,
    "unexpected success": FAILED,
}
_HEADS = {"FAIL: ": FAILED, "ERROR: ": ERROR, "UNEXPECTED SUCCESS: ": FAILED}
_MIGRATED = "Applying sites.0002_alter_domain_unique..."
"""Django prints a migration into the line of the test that runs it."""


def read_django(output: str) -> dict[str, str]:
    lines = [line.strip() for line in plain_lines(output)]
    counts = [int(ran[1]) for line in lines if (ran := _RAN.fullmatch(line))]
    if not counts:
        return {}
    found = list(_found(lines))
    passed = sum(status == PASSED for _, status in found)
    if passed > sum(counts):
        found = [(test, CONFLICT if status == PASSED else status) for test, status in found]
    return merged(found)


def _found(lines: list[str]) -> Iterator[Found]:
    waiting = ""  # a test whose line other output interrupted
    for line in lines:
        line = line.removeprefix(_MIGRATED)
        skipped, is_skipped, _ = line.partition(_SKIPPED)
        test, dots, word = f"{line} ".rpartition(_DOTS)
        word = word.strip()
        if is_skipped:
            yield skipped.strip(), SKIPPED
            waiting = ""
        elif dots and word in _WORDS:
            yield test.strip(), _WORDS[word]
            waiting = ""
        elif dots:
            waiting = test.partition(_DOTS)[0].strip()
        elif waiting and line in _WORDS:
            yield waiting, _WORDS[line]
            waiting = ""
        else:
            head = next((head for head in _HEADS if line.startswith(head)), None)
            if head is not None:
                test, closing, _ = line.removeprefix(head).partition(")")
                yield test + closing, _HEADS[head]
