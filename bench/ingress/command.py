"""`bench ingress`: its options, and the table that it prints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

import typer

from bench.errors import UsageError
from bench.ingress.traffic import TRAFFIC
from bench.measuring.command import JsonFile, allow_files, progress, write_json
from toolwright.process import loop

FILES_AN_AGENT, SPARE_FILES = 2, 512
_LISTED = "; ".join(f"{one.name} ({one.what})" for one in TRAFFIC.values())


def ingress(
    traffic: Annotated[
        list[str] | None,
        typer.Option("--traffic", help=f"{_LISTED}. May be repeated. Default: plain."),
    ] = None,
    agents: Annotated[int | None, typer.Option(min=1, help="Agents at a time.")] = None,
    calls: Annotated[int | None, typer.Option(min=1, help="Calls of an agent.")] = None,
    context: Annotated[
        int | None, typer.Option(min=256, help="Tokens at the end of a conversation.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0, help="Calls a second of all agents; 0: no pauses.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="ingress.threads, which encode.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of texts, lengths and pauses.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Measure what the ingress adds to a model call of an outside agent.

    Agents stream chat completions from a real `ingress serve` and a real engine with its journal,
    in front of a scripted sampler. Each part is a process of its own. Added latency is the client's
    time less the sampler's: until the last text, and until the end, which the engine's disk
    precedes. First calls, whose prompts are encoded as a whole, have figures of their own. CPU time
    and loop lag are those of later calls. Other processes of the machine are in all figures, so the
    load average stands beside them.

    \b
    Examples:
        bench ingress
        bench ingress --traffic reported --json reported.json
        bench ingress --traffic connections --agents 256 --context 32000
    """
    names = list(dict.fromkeys(traffic or ["plain"]))
    if unknown := [name for name in names if name not in TRAFFIC]:
        raise UsageError(f"no traffic {unknown[0]!r}: there are {', '.join(TRAFFIC)}")
    given = {"agents": agents, "calls": calls, "context": context, "rate": rate}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    chosen = [replace(TRAFFIC[name], **changes) for name in names]

    most = max(one.agents for one in chosen)
    allow_files(FILES_AN_AGENT * most + SPARE_FILES, f"--agents {most}")

    from bench.ingress.measure import measure

    report = loop.run(measure(chosen, threads=threads, seed=seed, say=progress))
    for row in report.rows:
        for line in lines(row.figures):
            typer.echo(line)
    typer.echo(report.machine_line)
    write_json(json_file, report.to_json())


def lines(found: dict[str, Any]) -> Iterable[str]:
    """The figures of a row as text."""
    before, after = found["load_average"]
    yield (
        f"{found['traffic']}: {found['agents']:,} agents, {found['calls']:,} calls in "
        f"{found['seconds']:.0f} s, {found['failed']} failed; load average {before:.1f} to "
        f"{after:.1f}"
    )
    for key, name in (
        ("text_ms", "added until the last text"),
        ("durable_ms", "added until the end, on disk"),
        ("first_ms", "added to calls with a whole new prompt"),
    ):
        if (spread := found[key]) is not None:
            yield (
                f"  {name}: p50 {spread['p50']:.1f}, p90 {spread['p90']:.1f}, "
                f"p99 {spread['p99']:.1f}, max {spread['max']:.0f} ms"
            )
    if found["cpu_ms_per_call"]:
        used = ", ".join(f"{name} {ms:.2f}" for name, ms in found["cpu_ms_per_call"].items())
        lag = found["lag_ms"]
        idle = ", ".join(f"{name} {ms:.0f}" for name, ms in found["idle_cpu_ms_per_s"].items())
        yield f"  CPU ms a call: {used}; without calls, CPU ms a second: {idle}"
        yield (
            f"  engine's loop lag: p50 {lag['p50']:.1f}, p99 {lag['p99']:.1f}, "
            f"worst {lag['worst']:.0f} ms"
        )
    yield "  peak MB: " + ", ".join(f"{name} {mb:.0f}" for name, mb in found["peak_mb"].items())
    yield from (f"  failure: {text}" for text in found["failures"])
