"""The `engine` command. Every failure that has a mend is one sentence and exit code 1."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from engine.config import EngineTable, RenderTable
from engine.errors import EngineError
from toolwright.recipe import Recipe, RecipeError, load_recipe, read_resolved
from toolwright.rpc.server import ListenError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The rollout engine: streams tokens from SGLang, calls tools over gRPC, ships "
    "trajectories to the learner.",
)


class Export(StrEnum):
    """What other trainers read."""

    JSONL = "jsonl"


RecipeArgument = Annotated[Path, typer.Argument(help="the run's TOML file, see docs/3-recipe.md")]
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
    signal.signal(signal.SIGTERM, _leave)  # until the engine's own handler stands
    with _one_sentence():
        read = load_recipe(recipe, set_ or ())
        _uvloop_run(lambda: _serve(read, fork))


@app.command()
def check(
    recipe: RecipeArgument,
    set_: Overrides = None,
    connect: Annotated[bool, typer.Option(help="also ask samplers and tool services")] = False,
) -> None:
    """Check a recipe without running it: tables, policy, sources, reward, and with --connect
    the services that it names."""
    with _one_sentence():
        from engine.commands.check import check as check_recipe

        read = load_recipe(recipe, set_ or ())
        table = read.table("engine", EngineTable)
        for line in check_recipe(read, table, connect=connect):
            typer.echo(line)
        typer.echo("the recipe is in order")


@app.command()
def render(recipe: RecipeArgument, set_: Overrides = None) -> None:
    """Turn recorded conversations (JSONL) into the trajectories file that `learner sft` reads."""
    with _one_sentence():
        from engine.build import build_codec, build_protocol, tools_of
        from engine.commands.render import render as render_file

        read = load_recipe(recipe, set_ or ())
        table = read.table("render", RenderTable)
        codec = build_codec(read, table.model)
        tools = asyncio.run(tools_of(read)) if table.ask_tools else []
        output = read.resolve(table.output)
        count = render_file(
            read.resolve(table.conversations), output, build_protocol(read), codec, tools
        )
        typer.echo(f"{count} trajectories: {output}")


@app.command(
    epilog="Exit codes: 0 the output is whole; 1 one sentence says what to mend; 130 or 143 a "
    "signal stopped it. In all but the first case the same command goes on where it ended."
)
def sample(
    recipe: RecipeArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="the trajectories file that `learner sft` reads")
    ],
    tasks: Annotated[
        str,
        typer.Option(help="FILE.jsonl, FILE.parquet or ./file.py:function; default: task.source"),
    ] = "",
    n: Annotated[
        int | None, typer.Option("--n", min=1, help="tasks, the first ones; default: all of a file")
    ] = None,
    per_task: Annotated[int, typer.Option(min=1, help="trajectories of each task")] = 1,
    keep: Annotated[
        str,
        typer.Option(
            help="./file.py:function or module:function of the scored Trajectory: True = it stays; "
            "engine.sample.keep:rewarded keeps those with a reward above 0"
        ),
    ] = "",
    most_per_task: Annotated[
        int | None, typer.Option(min=1, help="trajectories that may stay of one task")
    ] = None,
    export: Annotated[
        Export | None,
        typer.Option(help="jsonl: OUTPUT.jsonl beside it, chat messages for other trainers"),
    ] = None,
    set_: Overrides = None,
) -> None:
    """Roll out tasks without a learner and keep the trajectories that are worth imitating.

    The samplers of the recipe are used as they are: start them with the weights that shall write.
    Every task is rolled out --per-task times with the recipe's protocol, tools, limits, reward and
    [sampler] settings. Of those, trajectories that infrastructure ended or that are masked go
    first, then what --keep refuses, then duplicates (the same actions after the same prompt), then
    what is above --most-per-task.

    Tasks that are done are in OUTPUT.progress.jsonl: after a kill the same command goes on, with a
    larger --n too. Rejection sampling, for example:

    engine sample recipe.toml --tasks questions.jsonl --per-task 8 --most-per-task 2
    --keep engine.sample.keep:rewarded --output run/kept.trajectories
    """
    with _one_sentence():
        from engine.commands.sample import Options, Stopped
        from engine.commands.sample import sample as collect

        read = load_recipe(recipe, set_ or ())
        table = read.table("engine", EngineTable)
        options = Options(
            output=output,
            folder=Path.cwd(),
            tasks=tasks,
            n=n,
            per_task=per_task,
            keep=keep,
            most_per_task=most_per_task,
            export=export is not None,
        )
        try:
            _uvloop_run(lambda: _sample(collect(read, table, options, _to_people), output))
        except Stopped as stopped:
            typer.echo(f"engine: {stopped}", err=True)
            sys.exit(128 + stopped.number)


async def _sample(work: Awaitable[str], output: Path) -> None:
    from engine.telemetry.logs import log_to

    log_to(output.with_name(output.name + ".log.jsonl"))
    typer.echo(await work)


def _to_people(line: str) -> None:
    typer.echo(line, err=True)


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
    with _one_sentence():
        from engine.build import build_rewards
        from engine.commands.replay import replay as replay_run

        read = load_recipe(recipe) if recipe else read_resolved(run / "engine.resolved.json")
        policy = read.resolve(read.shared.policy.model)
        rewards = build_rewards(read)
        try:
            done = asyncio.run(replay_run(run, rewards, policy))
        finally:
            rewards.close()
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
    with _one_sentence():
        from engine.commands.inspect import policy_text, run_state, trajectory_state

        if trajectory:
            found = trajectory_state(run, trajectory, policy_text(run))
        else:
            found = run_state(run)
        if json_:
            typer.echo(json.dumps(found, default=str))
            return
        from engine.commands.show import show

        show(found)


async def _serve(recipe: Recipe, fork: Path | None) -> None:
    from engine.serve import Engine
    from engine.telemetry.logs import log_to

    table = recipe.table("engine", EngineTable)
    log_to(recipe.run_folder / "engine.jsonl")
    await Engine(recipe, table, fork=fork).run()


def _leave(_number: int, _frame: object) -> NoReturn:
    typer.echo("engine: told to stop before it served", err=True)
    sys.exit(0)


def _uvloop_run(work: Callable[[], object]) -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())  # type: ignore[arg-type]


@contextmanager
def _one_sentence() -> Iterator[None]:
    try:
        yield
    except (RecipeError, EngineError, ListenError, BaseExceptionGroup) as error:
        causes = _leaves(error)
        if not isinstance(causes[0], RecipeError | EngineError | ListenError):
            raise
        typer.echo(f"engine: {causes[0]}", err=True)
        sys.exit(1)


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors inside nested groups; a task that failed arrives in the groups around it."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]


def main() -> None:
    app()


if __name__ == "__main__":
    main()
