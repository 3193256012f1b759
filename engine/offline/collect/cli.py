"""The command `engine sample`. Its modules are imported when it runs, so that --help is fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.offline.cli_options import (
    Endpoints,
    Overrides,
    PriceIn,
    PriceOut,
    RecipeArgument,
    Seconds,
    TaskName,
    override,
)
from engine.offline.enums import Dedupe, ExportLayout
from engine.offline.exits import print_to_stderr, report_errors, run_on_uvloop

ENDS = (
    "Exit codes: 0 the output is whole, or a budget is used up; 1 an error, in one sentence "
    "with the fix; 130 or 143 a signal stopped it. The same command goes on where it ended."
)


def sample(
    recipe: RecipeArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="trajectories for `learner sft`: a file, or with --shard-size a folder",
        ),
    ],
    tasks: Annotated[
        str,
        typer.Option(help="FILE.jsonl, FILE.parquet or ./file.py:function; default: task.source"),
    ] = "",
    task: TaskName = "",
    n: Annotated[
        int | None,
        typer.Option(
            "--n", min=1, help="number of tasks, from the first on; default: all of a file"
        ),
    ] = None,
    per_task: Annotated[int, typer.Option(min=1, help="trajectories of each task")] = 1,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FUNCTION",
            help="./file.py:function or module:function of a scored Trajectory, True = keep it; "
            "engine.api:rewarded keeps those with a reward above 0; may be repeated",
        ),
    ] = None,
    dedupe: Annotated[
        Dedupe,
        typer.Option(help="what makes duplicates: actions, or the question with its calls"),
    ] = Dedupe.ACTIONS,
    most_per_task: Annotated[
        int | None, typer.Option(min=1, help="most trajectories kept of one task")
    ] = None,
    shard_size: Annotated[
        int | None,
        typer.Option(min=1, help="most trajectories of a file; OUTPUT is then a folder"),
    ] = None,
    export: Annotated[
        list[ExportLayout] | None,
        typer.Option(
            metavar="jsonl|openai|hermes",
            help="also write chat messages for other trainers; may be repeated",
        ),
    ] = None,
    budget_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="most tokens that the policy writes, restarts included"),
    ] = None,
    budget_seconds: Seconds = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    endpoint: Endpoints = None,
    set_: Overrides = None,
) -> None:
    """Roll out tasks without a learner and keep the trajectories that are worth imitating.

    The recipe's samplers are used as they are: start them with the weights to sample from. Every
    task is rolled out --per-task times with the recipe's protocol, tools, limits, reward and
    [sampler] settings. Trajectories are then dropped in this order: those that infrastructure
    ended, whose reward failed, or that are masked; those that any --keep refuses; duplicates; those
    above --most-per-task. Duplicates have the same actions after the same prompt, or with --dedupe
    calls the same calls for the same question.

    The progress, the final table and OUTPUT.yield.json say how many trajectories each criterion
    refuses, and how many it alone refuses. --budget-tokens starts no task that would exceed it;
    --budget-seconds drops what is in flight. Both leave a whole OUTPUT, and a larger budget goes
    on.

    OUTPUT.progress.jsonl lists finished tasks: after a kill the same command goes on, also with a
    larger --n. Rejection sampling, for example:

    \b
        engine sample recipe.toml --per-task 8 --most-per-task 2 \\
            --keep right=engine.api:rewarded --keep ./mine.py:short \\
            --shard-size 1000 --export openai --output run/kept
    """
    with report_errors():
        from engine.config import EngineTable
        from engine.core.build import one_task
        from engine.offline.collect.budget import Budget
        from engine.offline.collect.command import collect
        from engine.offline.collect.options import CollectionOptions
        from engine.offline.prices import Prices
        from toolwright.recipe import load_recipe

        overrides = [*(set_ or ()), *override("sampler.endpoints", endpoint)]
        read = one_task(load_recipe(recipe, overrides), task, "`engine sample`")
        table = read.table("engine", EngineTable)
        options = CollectionOptions(
            output=output,
            folder=Path.cwd(),
            tasks=tasks,
            n=n,
            per_task=per_task,
            keep=tuple(keep or ()),
            dedupe=dedupe,
            most_per_task=most_per_task,
            shard_size=shard_size,
            export=tuple(dict.fromkeys(export or ())),
            budget=Budget(tokens=budget_tokens, seconds=budget_seconds),
            prices=Prices(read=price_in, written=price_out),
        )
        typer.echo(run_on_uvloop(lambda: collect(read, table, options, print_to_stderr)))
