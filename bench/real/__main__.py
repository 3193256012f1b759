"""`python -m bench.real`: the command line. The model is prepared, then the course is run."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench.demo.commands import Commands, Overrides
from bench.demo.session import demonstrate, fail, overrides_of
from bench.demo.subject import ROOT
from bench.errors import BenchError
from bench.real.model import SMOLLM2_135M, prepare
from bench.real.subject import arithmetic

WORD = "real"
GPU_SAMPLER = ROOT / ".venv-sglang-gpu/bin/python"
ON_GPU: Overrides = {
    "sft.precision": "bfloat16",
    "learner.precision": "bfloat16",
    # Sampler and learner round differently in bfloat16.
    "run.correction": "token_truncate",
}


class Device(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def real(
    device: Annotated[Device, typer.Option(help="where sampler and learner compute")] = Device.CPU,
    sampler_python: Annotated[
        Path, typer.Option(help="with cuda: Python of an environment with SGLang for the GPU")
    ] = GPU_SAMPLER,
    seeds: Annotated[int, typer.Option(min=1, help="runs, with seeds 1, 2, ...")] = 1,
    control: Annotated[bool, typer.Option("--control", help="and one with rate 0")] = False,
    steps: Annotated[int | None, typer.Option(min=1, help="training steps; the recipe's")] = None,
    folder: Annotated[Path | None, typer.Option(help="new folder; runs/<time>-real")] = None,
    model: Annotated[
        Path | None, typer.Option(help="another Hugging Face folder than SmolLM2's")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.KEY=VALUE", help="replaces a value of the recipe"),
    ] = None,
) -> None:
    """Train a small pretrained model to do arithmetic with Python, and write a report."""
    on_gpu = device is Device.CUDA
    overrides = {**(ON_GPU if on_gpu else {}), **overrides_of(set_, steps)}
    try:
        if on_gpu:
            _check_gpu(sampler_python)
        policy = model.resolve() if model else prepare(SMOLLM2_135M)
    except BenchError as error:
        fail(WORD, str(error))
    demonstrate(
        WORD,
        Commands(subject=arithmetic(policy), gpu_sampler=sampler_python if on_gpu else None),
        folder=folder,
        seeds=seeds,
        control=control,
        overrides=overrides,
    )


def _check_gpu(sampler_python: Path) -> None:
    """BenchError where one of the two would fall back to the CPU, or not start."""
    if not sampler_python.is_file():
        raise BenchError(
            f"{sampler_python} is missing: make an environment with SGLang for your GPU (see "
            "docs/7-sampler.md) and name its Python with --sampler-python"
        )
    asked = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    if subprocess.run((sys.executable, "-c", asked), check=False).returncode != 0:
        raise BenchError(
            "torch sees no CUDA device from .venv: install its CUDA build there, "
            "or leave --device cuda away"
        )


if __name__ == "__main__":
    app()
