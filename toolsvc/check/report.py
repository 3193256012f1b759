"""The report of the findings for people."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from toolsvc.check.check import Check
from toolsvc.check.subject import Subject
from toolsvc.check.types import CheckOutcome, Report

_STYLES = {
    CheckOutcome.PASSED: "green",
    CheckOutcome.FAILED: "bold red",
    CheckOutcome.SKIPPED: "yellow",
}


PIPE_WIDTH = 10_000
"""Width of a table outside a terminal, in characters: a row is one line."""


def report_console() -> Console:
    """Standard output. COLUMNS is its width if it is set."""
    console = Console()
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(width=PIPE_WIDTH)


def show_report(console: Console, report: Report, checks: Sequence[Check]) -> None:
    """A row for each check, then the claim and the reason of each failure, then the counts."""
    table = Table(box=None, pad_edge=False)
    table.add_column("rule")
    table.add_column("check", no_wrap=True)
    each_tool = any(finding.tool for finding in report.findings)
    if each_tool:
        table.add_column("tool", no_wrap=True)
    table.add_column("outcome")
    table.add_column("reason", overflow="fold")
    for finding in report.findings:
        outcome = f"[{_STYLES[finding.outcome]}]{finding.outcome}[/]"
        tool = [escape(finding.tool)] if each_tool else []
        table.add_row(finding.rule, finding.name, *tool, outcome, escape(finding.reason))
    _print(console, table)
    claims = {check.name: check.claim for check in checks}
    for finding in report.findings:
        if finding.outcome is CheckOutcome.FAILED:
            of = f", tool {escape(finding.tool)}" if finding.tool else ""
            console.print(f"\n[bold red]{finding.name}[/] (rule {finding.rule}{of})")
            console.print(f"  must hold: {escape(claims[finding.name])}")
            console.print(f"  was seen:  {escape(finding.reason)}")
    counts = ", ".join(f"{report.count(outcome)} {outcome}" for outcome in CheckOutcome)
    console.print(f"\n{counts}")


def show_checks(console: Console, checks: Sequence[Check]) -> None:
    """Every check with its rule and its claim."""
    table = Table(box=None, pad_edge=False)
    table.add_column("rule")
    table.add_column("check", no_wrap=True)
    table.add_column("what must hold", overflow="fold")
    for check in checks:
        table.add_row(check.rule, check.name, escape(check.claim))
    _print(console, table)


def show_subjects(console: Console, address: str, subjects: Sequence[Subject]) -> None:
    """The tools that were found, and the kinds of actions in their probes."""
    for subject in subjects:
        kinds = subject.probe.kinds
        found = ", ".join(kind.value for kind in kinds) if kinds else "no probe: answers alone"
        console.print(f"{escape(address)}: tool [bold]{escape(subject.name)}[/] ({found})")


def _print(console: Console, table: Table) -> None:
    """Prints a table. Outside a terminal a line has no blanks at its end."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.print(line.rstrip(), markup=False, highlight=False, soft_wrap=True)
