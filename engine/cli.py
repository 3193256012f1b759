"""The `engine` command: what can be typed, and which module does it.

A command's module is imported when the command runs, so that `engine --help` is quick.
"""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

import typer

from engine.config import EngineTable, RenderTable
from engine.offline.cli_options import (
    EngineAddress,
    Json,
    Overrides,
    RecipeArgument,
    RunArgument,
    TaskName,
)
from engine.offline.collect import cli as sampling
from engine.offline.enums import TraceLayout
from engine.offline.evaluate import cli as evaluation
from engine.offline.exits import exit_before_serving, report_errors, run_on_uvloop
from engine.serving.crew.processes.backends import Backend, on_backend
from toolwright.process.command_line import command_line, start
from toolwright.process.parent import die_with_parent
from toolwright.recipe import load_recipe, read_resolved

ENGINE = "127.0.0.1:50051"

app = command_line(
    "engine",
    help="The rollout engine: streams tokens from SGLang, calls tools over gRPC, ships "
    "trajectories to the learner.",
)


@app.command()
def serve(
    recipe: RecipeArgument,
    set_: Overrides = None,
    fork: Annotated[
        Path | None,
        typer.Option(help="folder of another run: starts a new run from its newest weights"),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=0, help="processes that roll out; 0 = the engine's own")
    ] = 0,
    backend: Annotated[
        Backend, typer.Option(help="where workers are: this machine, or a Ray cluster")
    ] = Backend.LOCAL,
    ray_address: Annotated[
        str, typer.Option(help="with --backend ray: host:port of the cluster's head")
    ] = "",
) -> None:
    """Roll out the recipe's tasks and serve the trajectories until SIGTERM.

    The recipe's run folder holds the journal. A second start continues where the first one ended,
    also inside trajectories.
    """
    signal.signal(signal.SIGTERM, exit_before_serving)
    with report_errors():
        from engine.serving.serve import serve as serve_recipe

        read = load_recipe(recipe, set_ or ())
        with on_backend(backend, ray_address, workers, read) as crew:
            run_on_uvloop(lambda: serve_recipe(read, fork, workers, crew))


@app.command(hidden=True)
def work(
    coordinator: Annotated[str, typer.Option(help="address of the coordinator")],
    name: Annotated[str, typer.Option(help="name of this life of the worker")],
    parent: Annotated[int, typer.Option(help="process id of the coordinator")],
) -> None:
    """Roll out for `engine serve --workers`, which starts this command."""
    die_with_parent(parent)  # before the slow imports: the coordinator may die meanwhile
    with report_errors():
        from engine.serving.worker.worker import work as work_for

        run_on_uvloop(lambda: work_for(coordinator, name))


@app.command()
def check(
    recipe: RecipeArgument,
    set_: Overrides = None,
    connect: Annotated[bool, typer.Option(help="also contact samplers and tool services")] = False,
) -> None:
    """Check a recipe without running it: tables, policy, task sources and reward.

    --connect also checks the services that it names.
    """
    with report_errors():
        from engine.offline.check.command import check as check_recipe

        read = load_recipe(recipe, set_ or ())
        table = read.table("engine", EngineTable)
        warnings = left_out = 0
        for line in check_recipe(read, table, connect=connect):
            typer.echo(line)
            warnings += line.startswith("warning: ")
            left_out += line.startswith("left out: ")
        but = f", but for {warnings} warning{'s' * (warnings > 1)}" if warnings else ""
        what = "what can be checked of the recipe now" if left_out else "the recipe"
        typer.echo(f"{what} is in order{but}")


@app.command()
def render(recipe: RecipeArgument, set_: Overrides = None) -> None:
    """Turn recorded conversations (JSONL) into the trajectories file that `learner sft` reads.

    [render] of the recipe names the files. A line is a conversation in one of two layouts. OpenAI's
    fine-tuning has {"messages": [...]}, and "tools" if the conversation has its own. Hermes has
    {"conversations": [...]}, with <tools>, <tool_call> and <tool_response> in its texts. The output
    has the tokens of a rollout with the recipe's protocol. A broken line is named with the fix; up
    to render.max_bad_rows of them are skipped.
    """
    with report_errors():
        from engine.offline.render import render_recipe

        read = load_recipe(recipe, set_ or ())
        typer.echo(render_recipe(read, read.table("render", RenderTable)))


app.command(epilog=sampling.ENDS)(sampling.sample)
app.add_typer(evaluation.app, name="eval")


@app.command()
def submit(
    tasks: Annotated[Path, typer.Argument(help="FILE.jsonl or FILE.parquet, rows as in a source")],
    engine: EngineAddress = ENGINE,
    task: TaskName = "",
) -> None:
    """Add training tasks to a running engine whose recipe has task.source = "submitted".

    The tasks are on the engine's disk when the command ends. The same file may be submitted again:
    a task is known by its id, or by the file's name and the row.
    """
    with report_errors():
        from engine.offline.remote import submit_file
        from engine.offline.signals import run_until_signal

        done = asyncio.run(run_until_signal(submit_file(tasks, engine, task)))
        typer.echo(f"{done.accepted} tasks submitted, {done.known} known before")


@app.command()
def watch(
    engine: EngineAddress = ENGINE,
    after: Annotated[
        int, typer.Option(min=0, help="only events with a higher number; 0 = all that it has")
    ] = 0,
    json_: Json = False,
) -> None:
    """Print the events of a running engine: tasks admitted, trajectories, groups, publishes.

    It waits for an engine that is started again, and ends with a signal. A line `gap` counts lost
    events.
    """
    with report_errors():
        from engine.offline.remote import watch as watch_engine
        from engine.offline.signals import run_until_signal

        asyncio.run(run_until_signal(watch_engine(engine, after, as_json=json_)))


@app.command()
def replay(
    run: RunArgument,
    recipe: Annotated[
        Path | None, typer.Argument(help="a recipe; default: the recipe that the run was made with")
    ] = None,
) -> None:
    """Replay a recorded run without model or GPU, and compare it with its records bit for bit.

    Token ids, masks and rewards are compared; the reward functions are called again. Needs a run
    with engine.history = "all".
    """
    with report_errors():
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
    json_: Json = False,
) -> None:
    """Show the state of a run, or one trajectory as a timeline, also while an engine serves it."""
    with report_errors():
        from engine.offline.inspect.state import policy_text, run_state, trajectory_state

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
        typer.Argument(help="names, for example g0000012-3; default: all that the journal holds"),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="the file")] = Path("traces.json"),
    layout: Annotated[
        TraceLayout,
        typer.Option(help="jaeger: its page uploads it; otlp: OpenTelemetry's JSON"),
    ] = TraceLayout.JAEGER,
) -> None:
    """Write recorded trajectories as traces: what was generated, called and scored when.

    The journal holds all trajectories with engine.history = "all", otherwise those that the learner
    has not acknowledged. A collector of the run, see run.traces, has the same trace ids.

    \b
        engine trace my-run/run g0000012-3 --output traces.json
    """
    with report_errors():
        from engine.offline.inspect.trace import write_traces

        typer.echo(write_traces(run, trajectories or (), output, layout))


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
            "by class, as in engine/offline/analyze/words.toml",
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="also write tables and plots there")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="RECORDING", help="another recording: its rates, and the differences"),
    ] = None,
    json_: Json = False,
) -> None:
    """Report which tools recordings called: how many, of what kind, how complex, how unevenly.

    Counts invocations and unique tools, by name and schema. Tools are classified by their words
    into domains and function types, and by their number of calls into three tiers. Their schemas
    get a complexity score, and a power law is fitted to frequency by rank. Schemas are recorded in
    runs with engine.history = "all" and in conversations with tools, such as exports of `engine
    sample`; other recordings have only the names of tools. Rates have standard errors: calls a
    trajectory, the shares of malformed and of failed calls, and what the recipe counts itself.

    \b
        engine analyze my-run/run --page tools.html
        engine analyze kept.jsonl others.jsonl --json
        engine analyze checks/run --compare no-checks/run
    """
    with report_errors():
        from engine.offline.analyze.command import print_analysis

        print_analysis(recordings, domains, page, compare, as_json=json_)


def main() -> None:
    start(app, "engine", extra="engine")


if __name__ == "__main__":
    main()
