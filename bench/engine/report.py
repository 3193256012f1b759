"""The rows as a table with remarks, and as a page whose timelines show where time is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench.engine.figures import Bar
from bench.engine.measure import EngineRow
from bench.measuring.report import Report
from toolwright.page.document import Block, bar, document, heading, listed, note, table

Found = dict[str, Any]
"""The figures of a row."""

COLUMNS: Sequence[tuple[str, str, Callable[[Found], str]]] = (
    ("load", "<11", lambda f: f["load"]),
    ("rollouts", ">9", lambda f: f"{f['trajectories']}"),
    ("per s", ">7", lambda f: f"{f['rollouts_per_s']:.1f}"),
    ("makespan", ">9", lambda f: f"{f['makespan_s']:.1f}"),
    ("ratio", ">7", lambda f: f"{f['makespan_ratio']:.3f}"),
    ("loop's", ">7", lambda f: _loop(f, "makespan_ratio", 3)),
    ("CPU ms", ">7", lambda f: f"{f['cpu_ms_per_trajectory']:.2f}"),
    ("loop's", ">7", lambda f: _loop(f, "cpu_ms_per_trajectory", 2)),
    ("RSS MB", ">7", lambda f: f"{f['rss_mb']:.0f}"),
    ("lag p50", ">8", lambda f: f"{f['lag_ms']['p50']:.1f}"),
    ("p99 ms", ">7", lambda f: f"{f['lag_ms']['p99']:.1f}"),
    ("call p50", ">9", lambda f: f"{f['call_ms']['p50']:.2f}"),
    ("p99 ms", ">7", lambda f: f"{f['call_ms']['p99']:.2f}"),
    ("dispatch p50", ">13", lambda f: _delay(f["dispatch_ms"], "p50")),
    ("p99 ms", ">7", lambda f: _delay(f["dispatch_ms"], "p99")),
    ("resume p99", ">11", lambda f: _delay(f["resume_ms"], "p99")),
    ("wrong", ">6", lambda f: f"{f['wrong_tokens']}"),
)
"""(heading, format, cell)."""
HEADER = "".join(f"{name:{form}}" for name, form, _ in COLUMNS)
BUSY = 0.9
"""Share of a core. A sampler that uses more delays its readers."""
NEAR = 1.03
"""Ratio to the best possible makespan. Above it a run was late."""
MOST_BARS = 300
"""Largest number of bars in the picture; of more trajectories every n-th is drawn."""
LATE_BARS = 30
"""Number of last trajectories that are always in the picture."""
_NAMES = {
    "opening": "until its first request",
    "generate": "generate, as planned",
    "generate_late": "sampler late",
    "dispatch": "stop to tool",
    "tool": "tool, as planned",
    "tool_late": "tool late",
    "resume": "answer to next request",
}


def lines(report: Report[EngineRow]) -> Iterable[str]:
    """The table, then remarks on its rows."""
    yield HEADER
    for row in report.rows:
        yield line(row.figures)
    yield ""
    for row in report.rows:
        yield from remarks(row)
    yield report.machine_line


def line(found: Found) -> str:
    """One row of the table."""
    return "".join(f"{cell(found):{form}}" for _, form, cell in COLUMNS)


def remarks(row: EngineRow) -> Iterable[str]:
    """Sentences on one row."""
    found = row.figures
    name = f"{found['load']}, {found['trajectories']:,}"
    lag, busy = found["lag_ms"], found["busy_lag_ms"]
    used = dict(found["cpu_s"])
    if found["bare"]:
        used["the bare loop's sampler"] = found["bare"]["sampler_cpu_s"]
    texts = [
        f"{found['makespan_s']:.1f} s beside {found['ideal_s']:.1f} s at best; all places were in "
        f"use after {found['ramp_up_s']:.1f} s; the load average was "
        f"{found['load_average_before']:.1f}",
        f"loop lag after the ramp-up p99 {lag['p99']:.1f}, worst {lag['worst']:.0f} ms; until half "
        f"were done p50 {busy['p50']:.1f}, p99 {busy['p99']:.1f} ms",
        "CPU-seconds: "
        + ", ".join(f"{process} {seconds:.1f}" for process, seconds in used.items()),
    ]
    if found["calls"]:
        call, trip = found["call_ms"], found["round_trip_ms"]
        texts.append(
            f"{found['calls']:,} calls, {found['call_errors']} errors; from the read of a stop to "
            f"the call p50 {call['p50']:.2f}, p90 {call['p90']:.2f}, p99 {call['p99']:.2f}, max "
            f"{call['max']:.1f} ms; from the call to the result p50 {trip['p50']:.2f}, p99 "
            f"{trip['p99']:.2f} ms"
        )
    if found["shares_s"]:
        texts.append(f"seconds of a trajectory, on average: {_listed(found['shares_s'])}")
        texts.append(
            f"seconds of the trajectory that ended last: {_listed(found['last_shares_s'])}"
        )
    if found["place_ms"] is not None:
        place = found["place_ms"]
        texts.append(
            f"a free place was used after p50 {place['p50']:.1f}, p99 {place['p99']:.1f} ms"
        )
    if "slow_sampler" in found:
        slow = found["slow_sampler"]
        texts.append(
            f"with a second sampler that is {slow['times_slower']:g} times slower: "
            f"{slow['makespan_to_fast_alone']:.2f} times the makespan of the fast one alone, "
            f"{slow['wrong_tokens']} wrong tokens"
        )
    texts += [
        f"with {one['number']} workers: makespan {one['makespan_s']:.1f} s, "
        f"{one['makespan_ratio']:.3f} of the best; CPU ms a trajectory "
        f"{one['cpu_ms_per_trajectory']:.2f}, {one['wrong_tokens']} wrong tokens"
        for one in found.get("workers", ())
    ]
    if "paper" in found:
        barriers, paper = found["barriers"], found["paper"]
        texts.append(
            f"with barriers {barriers['makespan_s']:.1f} s beside {barriers['ideal_s']:.1f} s at "
            f"best; speed-up {found['speed_up']:.2f} of {found['allowed_speed_up']:.2f} allowed; "
            f"paper {paper['synchronous']:.0f} to {paper['asynchronous']:.0f} s, "
            f"{paper['speed_up']:.2f}, on 8 H100 (arXiv:2509.01055, T2)"
        )
    return [f"{name}: {text}" for text in [*texts, *_warnings(found)]]


def _warnings(found: Found) -> Iterable[str]:
    """Sentences on what spoils a row."""
    if found["cpu_s"]["sampler"] > BUSY * found["makespan_s"]:
        yield "the sampler was busy all the time: it, not the engine, set the pace"
    for name, run in (("the engine", found), ("the loop with barriers", found["barriers"])):
        if "paper" in found and run["makespan_ratio"] > NEAR:
            late = run["makespan_s"] - run["ideal_s"]
            yield f"{name} was late by {late:.1f} s: was the machine busy?"
    if found["not_completed"]:
        yield f"{found['not_completed']} trajectories did not come to their end"
    if found["repeated_turns"]:
        yield f"{found['repeated_turns']} more turns than planned: attempts have failed"
    for kind in ("bare", "barriers"):
        if found[kind] and found[kind]["wrong_tokens"]:
            yield f"the loop ({kind}) has {found[kind]['wrong_tokens']} wrong tokens"


def page(report: Report[EngineRow]) -> str:
    """One HTML page that needs nothing else."""
    blocks = [
        note(
            "Seeded plans were played by the engine, and by a loop beside it, against the same "
            "scripted sampler. Times are beside the best possible ones. In the pictures, blue: the "
            "sampler writes; green: the tool runs; red: waits for the engine, or for a barrier; "
            "dashed: the best possible makespan."
        ),
        *(block for row in report.rows for block in _section(row)),
        heading("Machine and versions"),
        table(("", ""), [*report.machine.items(), *report.versions.items()]),
    ]
    return document("The engine under planned loads", blocks)


def _section(row: EngineRow) -> Iterable[Block | None]:
    found = row.figures
    yield heading(f"{found['load']}, {found['trajectories']:,} trajectories")
    yield table([name for name, *_ in COLUMNS], [[cell(found).strip() for *_, cell in COLUMNS]])
    yield listed(remarks(row))
    for title, one in (
        ("A trajectory on average", found["shares_s"]),
        ("The trajectory that ended last", found["last_shares_s"]),
    ):
        yield bar(title, _parts(one) if one else ())
    for timeline in row.timelines:
        bars = sampled(timeline.bars)
        yield {
            "kind": "timeline",
            "title": f"{timeline.title}: {len(bars)} of {len(timeline.bars)} trajectories",
            "ideal": timeline.ideal_s,
            "bars": [
                {"end": one.end, "generate": list(one.generate), "tool": list(one.tool)}
                for one in bars
            ],
        }


def sampled(bars: Sequence[Bar]) -> list[Bar]:
    """The bars of the picture, in the order of their ends."""
    ordered = sorted(bars, key=lambda bar: bar.end)
    if len(ordered) <= MOST_BARS:
        return ordered
    early, late = ordered[:-LATE_BARS], ordered[-LATE_BARS:]
    return [*early[:: -(-len(early) // (MOST_BARS - LATE_BARS))], *late]


def _loop(found: Found, key: str, digits: int) -> str:
    loop = found["bare"] or found["barriers"]
    return f"{loop[key]:.{digits}f}" if loop else "-"


def _delay(found: dict[str, float] | None, name: str) -> str:
    return "-" if found is None else f"{found[name]:.1f}"


def _parts(shares: dict[str, float]) -> Iterable[tuple[str, float, str]]:
    for key, name in _NAMES.items():
        if (value := shares[key]) > 0:
            yield name, value, f"{value:.2f} s"


def _listed(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {shares[key]:.2f}" for key, name in _NAMES.items())
