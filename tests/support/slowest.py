"""The files that took most of a test run, so that nobody has to guess where its minutes go."""

from __future__ import annotations

from collections import Counter

import pytest

SHOWN = 10


class SlowestFiles:
    """A pytest plugin; under pytest-xdist the process that prints hears of all workers' tests."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = sum(self._seconds.values())
        terminalreporter.section(
            f"{SHOWN} slowest of {len(self._seconds)} files, {total:.0f} s in all"
        )
        for file, seconds in self._seconds.most_common(SHOWN):
            terminalreporter.write_line(f"{seconds:7.1f} s  {file}")
