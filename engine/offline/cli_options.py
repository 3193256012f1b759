"""Arguments and options that several commands of `engine` share."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer


def _finite(seconds: float | None) -> float | None:
    if seconds is not None and not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is not a number of seconds: leave it out for no limit")
    return seconds


RecipeArgument = Annotated[
    Path, typer.Argument(help="the run's TOML file, see docs/train/recipe.md")
]
RunArgument = Annotated[Path, typer.Argument(help="the run's folder, run.folder of its recipe")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="a dotted override, for example --set run.steps=10; may be repeated"
    ),
]
TaskName = Annotated[
    str, typer.Option(metavar="NAME", help="the task to use, in a recipe with several")
]
Endpoints = Annotated[
    list[str] | None,
    typer.Option("--endpoint", metavar="URL", help="replaces sampler.endpoints; may be repeated"),
]
PriceIn = Annotated[
    float | None, typer.Option(min=0, help="price of a million prompt tokens, for the cost")
]
PriceOut = Annotated[
    float | None, typer.Option(min=0, help="price of a million generated tokens, for the cost")
]
Seconds = Annotated[
    float | None,
    typer.Option(min=0, callback=_finite, help="longest time of rolling out, restarts included"),
]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs; nothing cut or rounded")]


def override(key: str, value: object) -> list[str]:
    """The override of a recipe's key by an option; none if the option was not given."""
    return [f"{key}={json.dumps(value)}"] if value else []
