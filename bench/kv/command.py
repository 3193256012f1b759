"""`bench kv`: its options and its table."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.errors import UsageError
from bench.kv.workloads import WORKLOADS
from bench.measuring.command import JsonFile, print_table, progress, whole_numbers, write_json

MILLION = 1_000_000


def kv(
    workloads: Annotated[
        list[str] | None, typer.Argument(metavar="[WORKLOAD...]", help=f"{', '.join(WORKLOADS)}.")
    ] = None,
    cache: Annotated[
        str, typer.Option(metavar="N[,N]", help="Sizes of the prefix cache, in tokens.")
    ] = "2000000,6000000,20000000",
    limits: Annotated[
        str, typer.Option(metavar="N[,N]", help="Fixed limits, besides 128.")
    ] = "8,16,32,64",
    trajectories: Annotated[int, typer.Option(min=1, help="Trajectories of a run.")] = 256,
    prefill_rate: Annotated[
        float, typer.Option(min=1, help="Prompt tokens a second of the GPU.")
    ] = 20_000,
    decode_rate: Annotated[
        float, typer.Option(min=1, help="Tokens a second of all streams.")
    ] = 4_000,
    stream_rate: Annotated[
        float, typer.Option(min=1, help="Tokens a second of a stream alone.")
    ] = 50,
    json_file: JsonFile = None,
) -> None:
    """Compare `engine.max_concurrent = "auto"` with fixed limits, on a modelled GPU.

    Trajectories have 43 turns and 142,000 tokens in the median. The engine's controller, its gate
    and its places run on a virtual clock against the scripted sampler's GPU. Its prefix cache drops
    what was used longest ago, and a prefill stops all decoding. After the given limits, limits near
    the best one are played too, so that the best is known in hindsight.

    \b
    Examples:
        bench kv
        bench kv steady --cache 6000000 --limits 40,48,56
    """
    names = list(dict.fromkeys(workloads or WORKLOADS))
    if unknown := [name for name in names if name not in WORKLOADS]:
        raise UsageError(f"no workload {unknown[0]!r}: the workloads are {', '.join(WORKLOADS)}")
    sizes, fixed = whole_numbers("--cache", cache), whole_numbers("--limits", limits)

    from bench.kv.grid import DEFAULT_LIMIT, measure
    from bench.kv.playing import Machine

    cells = [
        measure(
            name,
            Machine(
                cache_tokens=size,
                prefill_rate=prefill_rate,
                decode_rate=decode_rate,
                stream_rate=stream_rate,
            ),
            trajectories=trajectories,
            limits=fixed,
            say=progress,
        )
        for name in names
        for size in sizes
    ]
    columns = ("workload", "cache", "auto s", "128 s", "best s", "best", "128/auto", "auto/best")
    rows = [
        [
            cell.workload,
            f"{cell.cache_tokens / MILLION:g} M",
            f"{cell.auto.seconds:,.0f}",
            f"{cell.fixed[DEFAULT_LIMIT].seconds:,.0f}",
            f"{cell.fixed[cell.best].seconds:,.0f}",
            str(cell.best),
            f"{cell.quicker:.2f}",
            f"{cell.to_best:.2f}",
        ]
        for cell in cells
    ]
    print_table(f"{trajectories} trajectories", columns, rows, left=2)
    write_json(json_file, {"cells": [cell.to_json() for cell in cells]})
