"""The rows for people: a table beside the paper's, and a page with both timelines."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from bench.makespan.report import sampled, timeline
from bench.rollouts.measure import Loop, Report, Row
from toolwright.page import pages

HEADER = (
    f"{'scenario':<12}{'synchronous':>12}{'allowed':>9}{'asynchronous':>14}{'allowed':>9}"
    f"{'speed-up':>10}{'allowed':>9}{'paper':>13}{'':>6}{'wrong':>7}"
)
NEAR = 1.03
"""Times what the work allows: above it the machine, or the engine, was late."""


def lines(report: Report) -> Iterable[str]:
    """The table, then what in it needs a word."""
    yield HEADER
    for row in report.rows:
        yield line(row)
    yield ""
    for row in report.rows:
        yield from remarks(row)
    yield f"{report.machine}; seconds as measured, the paper's on 8 H100 (arXiv:2509.01055, T2)"


def line(row: Row) -> str:
    """One row of the table."""
    wrong = row.synchronous.wrong_tokens + row.asynchronous.wrong_tokens
    paper = f"{row.paper['synchronous']:.0f} to {row.paper['asynchronous']:.0f}"
    return (
        f"{row.scenario:<12}{row.synchronous.makespan_s:>12.1f}{row.synchronous.allowed_s:>9.1f}"
        f"{row.asynchronous.makespan_s:>14.1f}{row.asynchronous.allowed_s:>9.1f}"
        f"{row.speed_up:>10.2f}{row.allowed:>9.2f}{paper:>13}{row.papers:>6.2f}{wrong:>7}"
    )


def remarks(row: Row) -> Iterable[str]:
    """Sentences on one row."""
    ways = (("batch-synchronous", row.synchronous), ("the engine", row.asynchronous))
    said = ", ".join(f"{name} {way.to_allowed - 1:+.1%}" for name, way in ways)
    yield (
        f"{row.scenario}: {row.trajectories} trajectories, {row.calls} calls, at {row.pace:g} "
        f"times the paper's pace; over what the work allows: {said}; load average before them "
        f"{row.synchronous.load:.1f} and {row.asynchronous.load:.1f}"
    )
    for name, way in ways:
        if way.to_allowed > NEAR:
            yield f"{row.scenario}: {name} was late; was the machine busy? {_where(way)}"
    if row.asynchronous.not_completed:
        yield (
            f"{row.scenario}: {row.asynchronous.not_completed} trajectories did not come to their "
            "end: the row says nothing"
        )


def page(report: Report) -> str:
    """One HTML page that needs nothing else."""
    return pages.render(
        "bench",
        "rollouts/page.html.jinja",
        {
            "header": HEADER,
            "lines": [line(row) for row in report.rows],
            "sections": [
                {
                    "title": row.scenario,
                    "remarks": list(remarks(row)),
                    "timelines": [
                        {
                            "title": title,
                            "svg": Markup(timeline(sampled(way.bars), way.allowed_s)),
                        }
                        for title, way in (
                            ("Batch-synchronous", row.synchronous),
                            ("The engine", row.asynchronous),
                        )
                    ],
                }
                for row in report.rows
            ],
            "facts": [("machine", report.machine), *report.versions.items()],
        },
    )


def _where(way: Loop) -> str:
    over = way.makespan_s - way.allowed_s
    return f"{over:.1f} s more than {way.allowed_s:.1f} s"
