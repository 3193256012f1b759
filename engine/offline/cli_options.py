"""Arguments and options that several commands of `engine` share."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from toolwright.recipe.models.spelling import grpc_fault


def _finite(seconds: float | None) -> float | None:
    if seconds is not None and not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is not a number of seconds: leave it out for no limit")
    return seconds


def _grpc_address(address: str) -> str:
    if fault := grpc_fault(address):
        raise typer.BadParameter(fault)
    return address


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
EngineAddress = Annotated[
    str,
    typer.Option(
        "--engine", metavar="HOST:PORT", help="run.engine of the recipe", callback=_grpc_address
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
