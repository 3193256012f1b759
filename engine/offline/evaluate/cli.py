"""The commands of `engine eval`: an evaluation, `show` to read one again, `compare` to read two.

A command's modules are imported when it runs, so that --help is fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.offline.cli_options import (
    Endpoints,
    Json,
    Overrides,
    PriceIn,
    PriceOut,
    RecipeArgument,
    TaskName,
    override,
)
from engine.offline.enums import SamplerApi
from engine.offline.exits import print_to_stderr, report_errors, run_on_uvloop
from toolwright.process.command_line import WithDefault

if TYPE_CHECKING:
    from engine.offline.evaluate.results.figures import ResultOptions
    from engine.offline.evaluate.results.paper_tables import PaperTables

UNSCORED = 3
"""Exit code if rows are left without a score."""
ENDS = (
    "Exit codes: 0 every question has its score; 3 some have none, and are named; 1 an error, in "
    "one "
    "sentence with the fix; 130 or 143 a signal stopped it. The same command goes on where it "
    "ended."
)

app = typer.Typer(
    cls=WithDefault,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Evaluate a recipe's suites without training. `engine eval RECIPE` is "
    "`engine eval run RECIPE`, whose --help has the options.",
)


FolderArgument = Annotated[Path, typer.Argument(help="the --output of `engine eval`")]
By = Annotated[
    str,
    typer.Option(metavar="PART", help="part of the reward that is the score; default: all of it"),
]
Against = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PAPER:TABLE", help="compare with a paper's table, such as se_search:T1; may repeat"
    ),
]
As = Annotated[
    list[str] | None,
    typer.Option("--as", metavar="SUITE=SET", help="the set of that table that a suite is"),
]


@app.command(epilog=ENDS)
def run(
    recipe: RecipeArgument,
    endpoint: Endpoints = None,
    api: Annotated[
        SamplerApi | None, typer.Option(help="replaces sampler.api: the API of the endpoints")
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="replaces sampler.model: the API's name of it")
    ] = "",
    set_: Overrides = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="folder; default: `eval` in the run's folder"),
    ] = None,
    suite: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="run only this suite; may be repeated")
    ] = None,
    task: TaskName = "",
    subset: Annotated[
        int | None, typer.Option(min=1, help="number of questions to draw from each suite")
    ] = None,
    subset_seed: Annotated[int, typer.Option(help="seed of --subset")] = 0,
    samples: Annotated[
        int, typer.Option(min=1, help="trajectories of each question: avg@k and pass@k")
    ] = 1,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="replaces the suites' temperature, 0 by default")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="rows in flight; default: engine.evaluation.max_concurrent"),
    ] = None,
    by: By = "",
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    against: Against = None,
    as_: As = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="start anew; an existing evaluation is set aside")
    ] = False,
) -> None:
    """Run every question of the recipe's suites once, with the weights that the samplers serve.

    Needs samplers and the recipe's tools, but no learner. The suites are the recipe's
    [[engine.evaluation.suites]], whatever their `when`; without any, all of task.source. The table
    goes to standard output; results.json, page.html and a line for each row stay in the folder.
    """
    with report_errors():
        from engine.config import EngineTable
        from engine.offline.evaluate.command import evaluate
        from engine.offline.evaluate.options import EvaluationOptions
        from engine.offline.evaluate.questions import Subset
        from toolwright.recipe import load_recipe

        overrides = [
            *(set_ or ()),
            *override("sampler.api", api),
            *override("sampler.endpoints", endpoint),
            *override("sampler.model", model),
        ]
        read = load_recipe(recipe, overrides)
        results = _result_options(by, price_in, price_out, against, as_)
        options = EvaluationOptions(
            task=task,
            output=output,
            suites=tuple(suite or ()),
            subset=Subset(n=subset, seed=subset_seed) if subset else None,
            samples=samples,
            temperature=temperature,
            concurrency=concurrency,
            fresh=fresh,
            results=results,
        )
        table = read.table("engine", EngineTable)
        found = run_on_uvloop(lambda: evaluate(read, table, options, print_to_stderr))
        _print_table(found, results.papers)
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
    """Make the table, results.json and page.html of an evaluation again, also while it runs."""
    with report_errors():
        from engine.offline.evaluate.results.figures import write_results

        options = _result_options(by, price_in, price_out, against, as_)
        found = write_results(folder, options)
        if json_:
            _print_json(found)
        else:
            _print_table(found, options.papers)
            typer.echo(folder)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="the --output of an evaluation")],
    b: Annotated[Path, typer.Argument(help="the --output of another")],
    by: By = "",
    cases: Annotated[
        int,
        typer.Option(min=0, help="so many questions with both texts, the largest difference first"),
    ] = 0,
    json_: Json = False,
) -> None:
    """Compare two evaluations question by question, and with what chance alone would give."""
    with report_errors():
        from engine.offline.evaluate.results.compare import compare as compare_folders
        from engine.offline.evaluate.results.compare import table

        found = compare_folders(a, b, by=by)
        if cases:
            from engine.offline.evaluate.results import cases as of_questions

            found["cases"] = of_questions.cases(a, b, cases, by=by)
        if json_:
            _print_json(found)
        else:
            typer.echo("\n".join(table(found)))
            if cases:
                typer.echo("\n".join(of_questions.lines(found["cases"])))


def _result_options(
    by: str,
    price_in: float | None,
    price_out: float | None,
    against: list[str] | None,
    as_: list[str] | None,
) -> ResultOptions:
    from engine.offline.evaluate.results.figures import ResultOptions
    from engine.offline.evaluate.results.paper_tables import PaperTables
    from engine.offline.prices import Prices

    return ResultOptions(
        by=by,
        prices=Prices(read=price_in, written=price_out),
        papers=PaperTables.parse(against or (), as_ or ()),
    )


def _print_json(found: Mapping[str, Any]) -> None:
    import orjson

    typer.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())


def _print_table(found: Mapping[str, Any], papers: PaperTables) -> None:
    from engine.offline.evaluate.results.table import table

    typer.echo("\n".join([*table(found), *papers.lines(found)]))
