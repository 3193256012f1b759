"""The `engine` command. Every failure that has a mend is one sentence and exit code 1."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

RecipeArgument = Annotated[Path, typer.Argument(help="the run's TOML file, see docs/3-recipe.md")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="a dotted override, for example --set run.steps=10"),
]


@app.command()
def serve(recipe: RecipeArgument, set_: Overrides = None) -> None:
    """Roll out the recipe's tasks and serve the trajectories until SIGTERM.

    The run folder that the recipe names holds the journal: a second start goes on where the
    first one ended.
    """
    signal.signal(signal.SIGTERM, _leave)  # until the engine's own handler stands
    with _one_sentence():
        read = load_recipe(recipe, set_ or ())
        _uvloop_run(lambda: _serve(read))


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
        from engine.build import build_protocol, tools_of
        from engine.commands.render import render as render_file
        from engine.text.codec import HuggingFaceCodec

        read = load_recipe(recipe, set_ or ())
        table = read.table("render", RenderTable)
        codec = HuggingFaceCodec(read.resolve(table.model or read.shared.policy.model))
        tools = asyncio.run(tools_of(read)) if table.ask_tools else []
        output = read.resolve(table.output)
        count = render_file(
            read.resolve(table.conversations), output, build_protocol(read), codec, tools
        )
        typer.echo(f"{count} trajectories: {output}")


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
        done = asyncio.run(replay_run(run, build_rewards(read), policy))
        for line in done.lines():
            typer.echo(line)
    if done.differences:
        raise typer.Exit(1)


@app.command()
def inspect(
    run: RunArgument,
    trajectory: Annotated[str | None, typer.Argument(help="for example g0000012-3")] = None,
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


async def _serve(recipe: Recipe) -> None:
    from engine.serve import Engine
    from engine.telemetry.telemetry import log_to

    table = recipe.table("engine", EngineTable)
    recipe.write_resolved("engine", table)
    log_to(recipe.run_folder / "engine.jsonl")
    await Engine(recipe, table).run()


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
