"""The rows for people: a table with remarks, and a page whose timeline shows where time is lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from bench.makespan.figures import Bar, Shares, Span
from bench.makespan.measure import Report, Row
from toolwright.page import charts, pages
from toolwright.page.charts import Part

HEADER = (
    f"{'trajectories':>12}{'chunk':>6}{'makespan':>9}{'bare':>7}{'CPU ms':>8}{'bare':>7}"
    f"{'to bare':>8}{'RSS MB':>8}{'lag p50':>8}{'p99 ms':>8}{'dispatch p50':>13}{'p99 ms':>8}"
    f"{'resume p99':>11}{'wrong':>7}"
)
BUSY = 0.9
"""Of a core: a sampler that uses more holds up whoever reads it."""
MOST_BARS = 300
"""In the picture; above it every n-th trajectory in the order of their ends."""
LATE_BARS = 30
"""The last trajectories are all in the picture."""
WIDTH, BAR, LEFT, FOOT = 1100, 4, 8, 34
_NAMES = {
    "opening": ("until its first request", "c5"),
    "generate": ("generate, as planned", "c0"),
    "generate_late": ("sampler late", "c7"),
    "dispatch": ("stop to tool", "c1"),
    "tool": ("tool, as planned", "c2"),
    "tool_late": ("tool late", "c7"),
    "resume": ("answer to next request", "c3"),
}


def lines(report: Report) -> Iterable[str]:
    """The table, then what in it needs a word."""
    yield HEADER
    for row in report.rows:
        yield _line(row.figures)
    yield ""
    for row in report.rows:
        yield from remarks(row)
    yield report.machine


def remarks(row: Row) -> Iterable[str]:
    """Sentences on one row."""
    found = row.figures
    name = f"{found['trajectories']:,}"
    yield (
        f"{name}: {found['makespan_s']:.1f} s beside {row.ideal_s:.1f} s at best; every place was "
        f"in use after {found['ramp_up_s']:.1f} s"
    )
    lag, busy = found["lag_ms"], found["busy_lag_ms"]
    yield (
        f"{name}: loop lag after the ramp-up p99 {lag['p99']:.1f}, worst {lag['worst']:.0f} ms; "
        f"until half were done p50 {busy['p50']:.1f}, p99 {busy['p99']:.1f} ms"
    )
    used = ", ".join(f"{who} {seconds:.1f}" for who, seconds in found["cpu_s"].items())
    yield f"{name}: CPU-seconds: {used}; the bare loop's sampler {_bare_sampler(found):.1f}"
    if found["cpu_s"]["sampler"] > BUSY * found["makespan_s"]:
        yield f"{name}: the sampler was busy all the time: it, not the engine, set the pace"
    if row.shares is not None and row.last_shares is not None:
        yield f"{name}: seconds of a trajectory, on average: {_said(row.shares)}"
        yield f"{name}: of the one that ended last: {_said(row.last_shares)}"
    if found["place_ms"] is not None:
        yield (
            f"{name}: a place was used again after p50 {found['place_ms']['p50']:.1f}, p99 "
            f"{found['place_ms']['p99']:.1f} ms"
        )
    if found["not_completed"]:
        yield f"{name}: {found['not_completed']} trajectories did not come to their end"
    if found["repeated_turns"]:
        yield f"{name}: {found['repeated_turns']} more turns than planned: attempts have failed"
    if found["bare"]["wrong_tokens"]:
        yield f"{name}: the bare loop has {found['bare']['wrong_tokens']} wrong tokens"
    if "slow_sampler" in found:
        slow = found["slow_sampler"]
        yield (
            f"{name}: with a second sampler that is {slow['times_slower']:g} times slower: "
            f"{slow['makespan_to_fast_alone']:.2f} times the makespan of the fast one alone, "
            f"{slow['wrong_tokens']} wrong tokens"
        )


def page(report: Report) -> str:
    """One HTML page that needs nothing else."""
    return pages.render(
        "bench",
        "makespan/page.html.jinja",
        {
            "header": HEADER,
            "sections": [
                {
                    "title": f"{row.figures['trajectories']:,} trajectories at once",
                    "line": _line(row.figures),
                    "remarks": list(remarks(row)),
                    "bars": [
                        {"title": title, "svg": Markup(charts.stacked_bar(_parts(shares)))}
                        for title, shares in (
                            ("A trajectory on average", row.shares),
                            ("The trajectory that ended last", row.last_shares),
                        )
                        if shares is not None
                    ],
                    "shown": len(chosen := sampled(row.bars)),
                    "of": len(row.bars),
                    "timeline": Markup(timeline(chosen, row.ideal_s)),
                }
                for row in report.rows
            ],
            "facts": [("machine", report.machine), *report.versions.items()],
        },
    )


def sampled(bars: Sequence[Bar]) -> list[Bar]:
    """Those in the picture, in the order of their ends."""
    ordered = sorted(bars, key=lambda bar: bar.end)
    if len(ordered) <= MOST_BARS:
        return ordered
    early, late = ordered[:-LATE_BARS], ordered[-LATE_BARS:]
    return [*early[:: -(-len(early) // (MOST_BARS - LATE_BARS))], *late]


def timeline(bars: Sequence[Bar], ideal_s: float) -> str:
    """A line a trajectory: what the sampler wrote, what the tool ran, and between them waiting."""
    last = max([ideal_s, *(bar.end for bar in bars)])
    height = BAR * len(bars)
    scale = (WIDTH - 2 * LEFT) / last

    def strokes(style: str, spans: Iterable[tuple[int, Span]]) -> str:
        path = "".join(
            f"M{LEFT + scale * begin:.1f} {BAR * line + BAR / 2:g}h{scale * (end - begin):.1f}"
            for line, (begin, end) in spans
        )
        return f'<path class="{style}" d="{path}"/>'

    numbered = list(enumerate(bars))
    ideal = LEFT + scale * ideal_s
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height + FOOT}" role="img" aria-label="timeline">',
        strokes("wait", ((line, (0.0, bar.end)) for line, bar in numbered)),
        strokes("generate", ((line, span) for line, bar in numbered for span in bar.generate)),
        strokes("tool", ((line, span) for line, bar in numbered for span in bar.tool)),
        f'<line class="ideal" x1="{ideal:.1f}" x2="{ideal:.1f}" y1="0" y2="{height + 4}"/>',
    ]
    parts += [
        f'<text class="tick" x="{LEFT + scale * second:.1f}" y="{height + 18}" '
        f'text-anchor="middle">{second:g} s</text>'
        for second in charts.ticks(0, last, about=12)
    ]
    return "\n".join([*parts, "</svg>"])


def _line(found: dict[str, Any]) -> str:
    bare, lag = found["bare"], found["lag_ms"]
    ratio = found["cpu_ms_per_trajectory"] / bare["cpu_ms_per_trajectory"]
    return (
        f"{found['trajectories']:>12}{found['chunk']:>6}{found['makespan_ratio']:>9.3f}"
        f"{bare['makespan_ratio']:>7.3f}{found['cpu_ms_per_trajectory']:>8.2f}"
        f"{bare['cpu_ms_per_trajectory']:>7.2f}{ratio:>8.2f}{found['rss_mb']:>8.0f}"
        f"{lag['p50']:>8.1f}{lag['p99']:>8.1f}{_of(found['dispatch_ms'], 'p50'):>13}"
        f"{_of(found['dispatch_ms'], 'p99'):>8}{_of(found['resume_ms'], 'p99'):>11}"
        f"{found['wrong_tokens']:>7}"
    )


def _of(found: dict[str, float] | None, name: str) -> str:
    return "-" if found is None else f"{found[name]:.1f}"


def _bare_sampler(found: dict[str, Any]) -> float:
    return float(found["bare"]["sampler_cpu_s"])


def _parts(shares: Shares) -> list[Part]:
    return [
        Part(name=name, style=style, value=max(value, 0.0), text=f"{value:.2f} s")
        for key, (name, style) in _NAMES.items()
        if (value := getattr(shares, key)) > 0
    ]


def _said(shares: Shares) -> str:
    return ", ".join(f"{name} {getattr(shares, key):.2f}" for key, (name, _) in _NAMES.items())
