"""R2E-Gym's log: a summary of pytest, or of a runner that prints one for unittest.

    PASSED r2e_tests/test_1.py::TestA::test_x     -> TestA.test_x

Names lose their file, as in the set's expected_output_json. A file that could not be collected has
no name at all, and is the test "". Skipped tests and expected failures are not reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from toolsvc.tools.swe.verifying.logs.pytest_summary import summary_of
from toolsvc.tools.swe.verifying.logs.statuses import ERROR, FAILED, PASSED, Found, merged


def read_r2e(output: str) -> dict[str, str]:
    return merged(_found(summary_of(output)))


def _found(lines: list[str]) -> Iterator[Found]:
    for line in lines:
        status, _, test = line.partition(" ")
        if status in (PASSED, FAILED, ERROR) and test:
            name = ".".join(test.split("::")[1:])
            yield name.partition(" - ")[0], status
