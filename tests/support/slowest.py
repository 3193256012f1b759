"""The files that took most of a test run, so that nobody has to guess where its minutes go.

Seconds on the clock, and seconds of CPU of the tests and of all processes that they started and
waited for: on few cores the second are what a run is made of."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest

SHOWN = 10


class SlowestFiles:
    """A pytest plugin; under pytest-xdist the process that prints hears of all workers' tests."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._cpu: Counter[str] = Counter()
        self._told = 0.0

    def pytest_collection_finish(self) -> None:
        self._told = _cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        used = _cpu_seconds()
        # An attribute of its own, which pytest-xdist carries like those that it knows.
        report.cpu_seconds = used - self._told
        self._told = used
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._seconds[file] += report.duration
        self._cpu[file] += getattr(report, "cpu_seconds", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total, cpu = sum(self._seconds.values()), sum(self._cpu.values())
        terminalreporter.section(
            f"{SHOWN} slowest of {len(self._seconds)} files, {total:.0f} s and {cpu:.0f} s of CPU"
        )
        for file, seconds in self._seconds.most_common(SHOWN):
            terminalreporter.write_line(f"{seconds:7.1f} s  {self._cpu[file]:7.1f} CPU  {file}")


def _cpu_seconds() -> float:
    """Of this process, and of those below it that have ended."""
    return sum(os.times()[:4])
