"""What can be typed after `engine eval`: an evaluation without training, `show` to read one again,
and `compare` to read two.

A command's modules are imported when it runs, so that --help is quick.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.offline.exits import one_sentence, run_on_uvloop, tell_people
from toolwright.process.command_line import WithDefault

if TYPE_CHECKING:
    from engine.offline.evaluate.results.beside import Beside

UNSCORED = 3
"""Exit code where rows stay without a score."""
ENDS = (
    "Exit codes: 0 every question has its score; 3 some have none, and are named; 1 one sentence "
    "says what to mend; 130 or 143 a signal stopped it. The same command goes on where it ended."
)

app = typer.Typer(
    cls=WithDefault,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Evaluate a recipe's suites without training. `engine eval RECIPE` is "
    "`engine eval run RECIPE`, whose --help has the options.",
)


class Api(StrEnum):
    """What endpoints speak."""

    SGLANG = "sglang"
    COMPLETIONS = "openai-completions"
    CHAT = "openai-chat"


RecipeArgument = Annotated[Path, typer.Argument(help="the TOML file, see docs/train/recipe.md")]
FolderArgument = Annotated[Path, typer.Argument(help="the --output of `engine eval`")]
By = Annotated[
    str, typer.Option(metavar="PART", help="the score is this part of the reward, not all of it")
]
PriceIn = Annotated[float | None, typer.Option(min=0, help="of a million tokens read")]
PriceOut = Annotated[float | None, typer.Option(min=0, help="of a million tokens written")]
Against = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PAPER:TABLE", help="beside a paper's table, se_search:T1 say; may be repeated"
    ),
]
As = Annotated[
    list[str] | None,
    typer.Option("--as", metavar="SUITE=SET", help="which set of that table a suite is"),
]
Json = Annotated[bool, typer.Option("--json", help="for machines, nothing rounded")]


@app.command(epilog=ENDS)
def run(
    recipe: RecipeArgument,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="in place of sampler.endpoints; may be repeated"),
    ] = None,
    api: Annotated[
        Api | None, typer.Option(help="in place of sampler.api: what the endpoints speak")
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="in place of sampler.model: as an API names it")
    ] = "",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="a dotted override; may be repeated")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="folder; default: `eval` in the run's folder"),
    ] = None,
    suite: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="only this one; may be repeated")
    ] = None,
    task: Annotated[
        str, typer.Option(metavar="NAME", help="of several in the recipe, the one whose suites")
    ] = "",
    subset: Annotated[
        int | None, typer.Option(min=1, help="so many questions of each suite, drawn by the seed")
    ] = None,
    subset_seed: Annotated[int, typer.Option(help="of --subset")] = 0,
    samples: Annotated[int, typer.Option(min=1, help="of each question: avg@k and pass@k")] = 1,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="in place of the suites', which is 0 by default")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="in flight; default: engine.evaluation.max_concurrent"),
    ] = None,
    by: By = "",
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    against: Against = None,
    as_: As = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="begin anew; what is there is set aside")
    ] = False,
) -> None:
    """Ask every question of the recipe's suites once, of the weights that the samplers serve.

    It needs samplers and the recipe's tools, and no learner. The suites are the recipe's
    [[engine.evaluation.suites]], whatever their `when`; without any, all of task.source. The table
    goes to standard output; results.json, page.html and a line for each row stay in the folder.
    """
    with one_sentence():
        from engine.config import EngineTable
        from engine.offline.evaluate.command import Options, evaluate
        from engine.offline.evaluate.results.beside import Beside
        from engine.offline.evaluate.results.figures import Reading
        from engine.offline.stopping import Stopped
        from toolwright.recipe import load_recipe

        chosen = [f"sampler.api={json.dumps(api)}"] if api else []
        chosen += [f"sampler.endpoints={json.dumps(endpoint)}"] if endpoint else []
        chosen += [f"sampler.model={json.dumps(model)}"] if model else []
        read = load_recipe(recipe, [*(set_ or ()), *chosen])
        beside = Beside.of(against or (), as_ or ())
        options = Options(
            task=task,
            output=output,
            suites=tuple(suite or ()),
            subset=subset,
            subset_seed=subset_seed,
            samples=samples,
            temperature=temperature,
            concurrency=concurrency,
            fresh=fresh,
            reading=Reading(by=by, price_in=price_in, price_out=price_out, beside=beside),
        )
        found: dict[str, Any] = {}

        async def work() -> None:
            found.update(
                await evaluate(read, read.table("engine", EngineTable), options, tell_people)
            )

        try:
            run_on_uvloop(work)
        except Stopped as stopped:
            tell_people(f"engine: {stopped}")
            sys.exit(128 + stopped.number)
        _tell(found, beside)
    if any(one["errored"] or one["open"] or not one["n"] for one in found["suites"]):
        raise typer.Exit(UNSCORED)


@app.command()
def show(
    folder: FolderArgument,
    by: By = "",
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    against: Against = None,
    as_: As = None,
    json_: Json = False,
) -> None:
    """Make the table, results.json and page.html of an evaluation again, also while it goes on."""
    with one_sentence():
        import orjson

        from engine.offline.evaluate.results.beside import Beside
        from engine.offline.evaluate.results.figures import Reading, write_results

        beside = Beside.of(against or (), as_ or ())
        reading = Reading(by=by, price_in=price_in, price_out=price_out, beside=beside)
        found = write_results(folder, reading)
        if json_:
            typer.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
        else:
            _tell(found, beside)
            typer.echo(folder)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="the --output of an evaluation")],
    b: Annotated[Path, typer.Argument(help="that of another")],
    by: By = "",
    json_: Json = False,
) -> None:
    """Compare two evaluations question by question, and tell what chance alone would give."""
    with one_sentence():
        import orjson

        from engine.offline.evaluate.results.compare import compare as compare_folders
        from engine.offline.evaluate.results.compare import table

        found = compare_folders(a, b, by=by)
        if json_:
            typer.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
        else:
            typer.echo("\n".join(table(found)))


def _tell(found: Mapping[str, Any], beside: Beside) -> None:
    from engine.offline.text_table import table

    typer.echo("\n".join([*table(found), *beside.lines(found)]))
