"""The report as one file with plots, by the blocks of `toolwright.page`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bench.measuring.report import Report
from bench.tools.load import verltool
from bench.tools.reading.compare import Change
from bench.tools.reading.rows import ToolRow, levels
from bench.tools.reading.terminal import remarks
from toolwright.page.document import Cell, charts, document, heading, listed, note, table
from toolwright.page.plot import Plot, line, plot

SPREAD = ("min", "avg", "p50", "p90", "p99", "max")

_Curve = tuple[str, str, Callable[[ToolRow], float | None]]
PLOTS: Sequence[tuple[str, str, Sequence[_Curve]]] = (
    (
        "Calls a second",
        "calls/s",
        (
            ("floor", "control", lambda row: row.floor.requests_per_s),
            ("service", "sampled", lambda row: row.ours.requests_per_s),
        ),
    ),
    (
        "Latency, p50 and p99",
        "ms",
        (
            ("floor, p99", "control dash1", lambda row: row.floor.latency.p99),
            ("floor, p50", "control", lambda row: row.floor.latency.p50),
            ("service, p99", "greedy", lambda row: row.ours.latency.p99),
            ("service, p50", "sampled", lambda row: row.ours.latency.p50),
        ),
    ),
    (
        "CPU time of a call, all processes",
        "ms",
        (
            ("floor", "control", lambda row: row.floor.cpu_ms),
            ("service", "sampled", lambda row: row.ours.cpu_ms),
        ),
    ),
)


def render(report: Report[ToolRow], changes: Sequence[Change], *, published: bool) -> str:
    """The whole page. published: whether figures of others stand beside ours."""
    others = verltool.PUBLISHED if published else ()
    blocks = [
        note(
            "Each load was put on the service and, right after it, on the floor: a gRPC server "
            "whose calls do nothing."
        ),
        listed(remarks(report.rows)),
        heading("Rows"),
        table(
            [
                *("load", "sessions", "calls/s", "floor", *SPREAD[:-1], "max ms"),
                *("wire + queue + run, average ms", "avg/max", "floor", "CPU ms", "client's"),
                *("floor", "MiB/session", "errors"),
            ],
            map(_row, report.rows),
        ),
        note(
            "Latency counts from the moment a call should have begun. Wire is what is neither "
            "queue nor run. CPU time is that of the client and of all processes of the server."
        ),
        heading("What others measured") if others else None,
        table(
            ("load", "at once", "where", "what"),
            ((one.workload, one.concurrency, one.where, verltool.said(one)) for one in others),
        ),
        *_changes(changes),
        *(
            charts(_plots([row for row in report.rows if row.name == name]), title=name)
            for name in dict.fromkeys(row.name for row in report.rows)
        ),
        heading("Machine and versions"),
        table(
            ("", ""),
            [
                *report.machine.items(),
                ("isolation", ", ".join(levels(report.rows)) or "-"),
                *report.versions.items(),
            ],
        ),
    ]
    return document("What a tool call costs under load", blocks)


def _row(row: ToolRow) -> list[Cell]:
    ours, floor = row.ours, row.floor
    return [
        *(row.name, row.concurrency, f"{ours.requests_per_s:.0f}", f"{floor.requests_per_s:.0f}"),
        *(f"{getattr(ours.latency, name):.1f}" for name in SPREAD),
        " + ".join(f"{spread.avg:.2f}" for spread in ours.parts.values()),
        *(f"{ours.average_to_max:.2f}", f"{floor.average_to_max:.2f}"),
        *(_maybe(ours.cpu_ms, 3), f"{ours.client_cpu_ms:.3f}", _maybe(floor.cpu_ms, 3)),
        *(_maybe(row.pss_mib_per_session, 2), row.errors),
    ]


def _changes(changes: Sequence[Change]) -> Iterator[dict[str, object] | None]:
    if not changes:
        return
    yield heading("Changes")
    yield note(
        "Judged by the ratio to the floor, round by round, so that a busier machine is not taken "
        "for a slower service."
    )
    yield table(
        ("row", "figure", "before", "now", "beside the floor", "by chance", "verdict"),
        (
            (
                *(one.row, one.figure, f"{one.old:.3f}", f"{one.new:.3f}"),
                *(f"{100 * one.relative:+.1f} %", f"{100 * one.chance:.0f} %", one.verdict),
            )
            for one in changes
        ),
    )


def _plots(rows: Sequence[ToolRow]) -> Iterator[Plot]:
    """Plots of one workload and mode, over its sessions."""
    for title, unit, curves in PLOTS:
        lines = [
            line(
                name,
                style,
                [(x, y) for x, row in enumerate(rows) if (y := pick(row)) is not None],
                "seen",
            )
            for name, style, pick in curves
        ]
        drawn = plot(title, title, unit, lines, low=0.0)
        if drawn is not None:
            labels = [str(row.concurrency) for row in rows]
            yield drawn | {"axis": "sessions", "labels": labels}


def _maybe(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
