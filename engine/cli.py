"""The `engine` command: what can be typed, and which module does it.

A command's module is imported when the command runs, so that `engine --help` is quick.
"""

from __future__ import annotations

import asyncio
import json
import math
import signal
import sys
from contextlib import ExitStack, closing
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from engine.config import EngineTable, RenderTable
from engine.offline.evaluate import options
from engine.offline.exits import (
    leave_before_serving,
    one_sentence,
    run_on_uvloop,
    tell_people,
)
from toolwright.process.command_line import command_line, start
from toolwright.recipe import load_recipe, read_resolved

app = command_line(
    "engine",
    help="The rollout engine: streams tokens from SGLang, calls tools over gRPC, ships "
    "trajectories to the learner.",
)


class Export(StrEnum):
    """`engine.offline.collect.layouts.Layout`, which is not imported for --help."""

    JSONL = "jsonl"
    OPENAI = "openai"
    HERMES = "hermes"


class Dedupe(StrEnum):
    """`engine.offline.collect.collector.Dedupe`."""

    ACTIONS = "actions"
    CALLS = "calls"


class TraceLayout(StrEnum):
    """`engine.offline.inspect.trace.Layout`."""

    JAEGER = "jaeger"
    OTLP = "otlp"


def _finite(seconds: float | None) -> float | None:
    if seconds is not None and not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is no time: leave it out for no bound")
    return seconds


RecipeArgument = Annotated[
    Path, typer.Argument(help="the run's TOML file, see docs/train/recipe.md")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="a dotted override, for example --set run.steps=10; may be repeated"
    ),
]


@app.command()
def serve(
    recipe: RecipeArgument,
    set_: Overrides = None,
    fork: Annotated[
        Path | None,
        typer.Option(help="folder of another run: begin a new run from its newest weights"),
    ] = None,
) -> None:
    """Roll out the recipe's tasks and serve the trajectories until SIGTERM.

    The run folder that the recipe names holds the journal: a second start goes on where the
    first one ended, also inside of trajectories.
    """
    signal.signal(signal.SIGTERM, leave_before_serving)
    with one_sentence():
        from engine.serving.serve import serve as serve_recipe

        read = load_recipe(recipe, set_ or ())
        run_on_uvloop(lambda: serve_recipe(read, fork))


@app.command()
def check(
    recipe: RecipeArgument,
    set_: Overrides = None,
    connect: Annotated[bool, typer.Option(help="also ask samplers and tool services")] = False,
) -> None:
    """Check a recipe without running it: tables, policy, sources, reward, and with --connect
    the services that it names."""
    with one_sentence():
        from engine.offline.check.command import check as check_recipe

        read = load_recipe(recipe, set_ or ())
        table = read.table("engine", EngineTable)
        warnings = left_out = 0
        for line in check_recipe(read, table, connect=connect):
            typer.echo(line)
            warnings += line.startswith("warning: ")
            left_out += line.startswith("left out: ")
        doubts = f", but for {warnings} warning{'s' * (warnings > 1)}" if warnings else ""
        what = "what can be checked of the recipe now" if left_out else "the recipe"
        typer.echo(f"{what} is in order{doubts}")


@app.command()
def render(recipe: RecipeArgument, set_: Overrides = None) -> None:
    """Turn recorded conversations (JSONL) into the trajectories file that `learner sft` reads.

    [render] of the recipe names the files. A line is a conversation: {"messages": [...]}, with
    "tools" where it has its own, as OpenAI's fine-tuning has them; or {"conversations": [...]} of
    the Hermes layout, with <tools>, <tool_call> and <tool_response> in its texts. What comes out
    are the tokens of a rollout with the recipe's protocol. A line that is broken is named with the
    mend; render.max_bad_rows are passed over.
    """
    with one_sentence():
        from engine.offline.render import render_recipe

        read = load_recipe(recipe, set_ or ())
        typer.echo(render_recipe(read, read.table("render", RenderTable)))


@app.command(
    epilog="Exit codes: 0 the output is whole, or what a budget was spent on; 1 one sentence says "
    "what to fix, such as a reward function that failed every time; "
    "130 or 143 a signal stopped it. The same command goes on where it ended."
)
def sample(
    recipe: RecipeArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="the trajectories that `learner sft` reads: a file, or a folder"
        ),
    ],
    tasks: Annotated[
        str,
        typer.Option(help="FILE.jsonl, FILE.parquet or ./file.py:function; default: task.source"),
    ] = "",
    task: Annotated[
        str, typer.Option(metavar="NAME", help="of several in the recipe, the one to roll out")
    ] = "",
    n: Annotated[
        int | None, typer.Option("--n", min=1, help="tasks, the first ones; default: all of a file")
    ] = None,
    per_task: Annotated[int, typer.Option(min=1, help="trajectories of each task")] = 1,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FUNCTION",
            help="./file.py:function or module:function of the scored Trajectory: True = it stays; "
            "engine.api:rewarded keeps those with a reward above 0; may be repeated",
        ),
    ] = None,
    dedupe: Annotated[
        Dedupe,
        typer.Option(help="what makes two the same: actions, or the question with its calls"),
    ] = Dedupe.ACTIONS,
    most_per_task: Annotated[
        int | None, typer.Option(min=1, help="trajectories that may stay of one task")
    ] = None,
    shard_size: Annotated[
        int | None,
        typer.Option(min=1, help="OUTPUT is a folder of files with at most so many trajectories"),
    ] = None,
    export: Annotated[
        list[Export] | None,
        typer.Option(
            metavar="jsonl|openai|hermes",
            help="chat messages for other trainers beside it; may be repeated",
        ),
    ] = None,
    budget_tokens: Annotated[
        int | None, typer.Option(min=1, help="that the policy may write, in all lives together")
    ] = None,
    budget_seconds: Annotated[
        float | None,
        typer.Option(min=0, callback=_finite, help="of rolling out, in all lives together"),
    ] = None,
    price_in: Annotated[
        float | None, typer.Option(min=0, help="of a million tokens read, for the cost")
    ] = None,
    price_out: Annotated[float | None, typer.Option(min=0, help="of a million written")] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="in place of sampler.endpoints; may be repeated"),
    ] = None,
    set_: Overrides = None,
) -> None:
    """Roll out tasks without a learner and keep the trajectories that are worth imitating.

    The samplers of the recipe are used as they are: start them with the weights that shall write.
    Every task is rolled out --per-task times with the recipe's protocol, tools, limits, reward and
    [sampler] settings. Of those, trajectories that infrastructure ended, whose reward failed or
    that are masked go first, then what any --keep refuses, then duplicates (the same actions after
    the same prompt, or with --dedupe calls the same calls for the same question), then what is
    above --most-per-task.

    How many each criterion refuses, and how many it alone refuses, is in the progress, in the table
    at the end and in OUTPUT.yield.json. --budget-tokens begins no task that would go beyond it,
    --budget-seconds drops what is in flight; both leave OUTPUT with what there is, and a larger one
    goes on.

    Tasks that are done are in OUTPUT.progress.jsonl: after a kill the same command goes on, with a
    larger --n too. Rejection sampling, for example:

    \b
        engine sample recipe.toml --per-task 8 --most-per-task 2 \\
            --keep right=engine.api:rewarded --keep ./mine.py:short \\
            --shard-size 1000 --export openai --output run/kept
    """
    with one_sentence():
        from engine.core.build import one_task
        from engine.offline.collect import collector, layouts
        from engine.offline.collect.budget import Budget, Prices
        from engine.offline.collect.command import Options, sample_and_tell
        from engine.offline.stopping import Stopped

        chosen = [f"sampler.endpoints={json.dumps(endpoint)}"] if endpoint else []
        read = one_task(load_recipe(recipe, [*(set_ or ()), *chosen]), task, "`engine sample`")
        table = read.table("engine", EngineTable)
        options = Options(
            output=output,
            folder=Path.cwd(),
            tasks=tasks,
            n=n,
            per_task=per_task,
            keep=tuple(keep or ()),
            dedupe=collector.Dedupe(dedupe),
            most_per_task=most_per_task,
            shard_size=shard_size,
            export=tuple(layouts.Layout(one) for one in dict.fromkeys(export or ())),
            budget=Budget(tokens=budget_tokens, seconds=budget_seconds),
            prices=Prices(read=price_in, written=price_out),
        )
        try:
            run_on_uvloop(lambda: sample_and_tell(read, table, options))
        except Stopped as stopped:
            tell_people(f"engine: {stopped}")
            sys.exit(128 + stopped.number)


app.add_typer(options.app, name="eval")


RunArgument = Annotated[Path, typer.Argument(help="the run's folder, run.folder of its recipe")]


@app.command()
def replay(
    run: RunArgument,
    recipe: Annotated[
        Path | None, typer.Argument(help="the recipe; left out, the one that the run was made with")
    ] = None,
) -> None:
    """Fold a recorded run again, call its reward functions, and compare ids, masks and rewards
    bit for bit, without model or GPU. Takes a run with engine.history = "all"."""
    with one_sentence():
        from engine.core.build import build_rewards, task_recipes
        from engine.offline.inspect.replay import replay as replay_run

        read = load_recipe(recipe) if recipe else read_resolved(run / "engine.resolved.json")
        with ExitStack() as stack:
            rewards = {
                name: stack.enter_context(closing(build_rewards(own)))
                for name, own in task_recipes(read).items()
            }
            policy = read.resolve(read.shared.policy.model)
            done = asyncio.run(replay_run(run, rewards, policy))
        for line in done.lines():
            typer.echo(line)
    if done.differences:
        raise typer.Exit(1)


@app.command()
def inspect(
    run: RunArgument,
    trajectory: Annotated[
        str | None, typer.Argument(help="its name, for example g0000012-3")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="for machines, nothing cut")] = False,
) -> None:
    """Show the state of a run, or one trajectory as a timeline, also while an engine serves it."""
    with one_sentence():
        from engine.offline.inspect.command import policy_text, run_state, trajectory_state

        found = (
            trajectory_state(run, trajectory, policy_text(run)) if trajectory else run_state(run)
        )
        if json_:
            typer.echo(json.dumps(found, default=str))
            return
        from engine.offline.inspect.show import show

        show(found)


@app.command()
def trace(
    run: RunArgument,
    trajectories: Annotated[
        list[str] | None,
        typer.Argument(help="their names, for example g0000012-3; none = all that are held"),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="the file")] = Path("traces.json"),
    layout: Annotated[
        TraceLayout,
        typer.Option(help="jaeger: its page uploads it; otlp: OpenTelemetry's JSON"),
    ] = TraceLayout.JAEGER,
) -> None:
    """Write recorded trajectories as traces: what was generated, called and scored when.

    Takes a journal that holds them: engine.history = "all", or what the learner has not
    acknowledged. The ids are those under which a collector has the run, see run.traces.

    \b
        engine trace my-run/run g0000012-3 --output traces.json
    """
    with one_sentence():
        from engine.offline.inspect.trace import Layout, write_traces

        typer.echo(write_traces(run, trajectories or (), output, Layout(layout)))


@app.command()
def analyze(
    recordings: Annotated[
        list[Path],
        typer.Argument(
            help="run folders, trajectories files, conversations as .jsonl; counted together",
            show_default=False,
        ),
    ],
    domains: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="other words for the classes of tools: [domains] and [functions], lists of words "
            "by name, as in engine/offline/analyze/words.toml",
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="also write tables and plots there")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="for machines, nothing rounded")] = False,
) -> None:
    """Tell which tools recordings called: how many, of what kind, how complex, how unevenly.

    Counts invocations and unique tools (by name and schema), sorts tools into domains and function
    types by their words and into three tiers by how much they are called, scores how complex their
    schemas are, and fits a power law to frequency by rank. Schemas are found in runs with
    engine.history = "all" and in conversations whose rows have tools, for example an export of
    `engine sample`; elsewhere the names of tools have to do.

    \b
        engine analyze my-run/run --page tools.html
        engine analyze kept.jsonl others.jsonl --json
    """
    with one_sentence():
        from engine.offline.analyze.command import analyze_and_tell

        analyze_and_tell(recordings, domains, page, as_json=json_)


def main() -> None:
    start(app, "engine", extra="engine")


if __name__ == "__main__":
    main()
