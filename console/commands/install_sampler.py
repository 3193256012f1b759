"""`toolwright install-sampler`: SGLang for this machine's CPU, by the script of the set-up.

The script, the pins and the shims come with the package; a checkout's `make setup` runs the same.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from console.machine import sampler_home
from toolwright.process.packaged import packaged

PINS = "constraints/sampler-cpu.txt"
DISK = "2.5 GB of disk"
TIME = "some minutes, by the network"


def install_sampler(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="a new or empty folder; left out, .venv-sglang of a checkout, else this user's",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Install SGLang for this machine's CPU, into an environment of its own.

    SGLang pins its own torch, so it cannot share Toolwright's environment. `toolwright run` and
    deploy/sglang-cpu/serve.py find it in the folder that is taken without an argument; another one
    is named in TOOLWRIGHT_SGLANG=FOLDER/bin/python. Interrupted, the same command goes on; a second
    time it costs nothing. On GPUs install SGLang by its own documentation instead.
    """
    chosen = (folder or sampler_home.usual()).absolute()
    for line in told(chosen):
        typer.echo(line)
    # A checkout's environment has the checkout's installer; any other one brings its own.
    own = folder is None and (chosen.parent / "pyproject.toml").is_file()
    part = "sampler" if own else f"sampler={chosen}"
    script = packaged("deploy/setup") / "setup.sh"
    environment = {
        **os.environ,
        "BASE_PYTHON": os.environ.get("BASE_PYTHON", sys.executable),
        "SETUP_COMMAND": "toolwright install-sampler",
    }
    try:
        done = subprocess.run(("bash", str(script), part), env=environment, check=False)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if done.returncode != 0:
        raise typer.Exit(1)
    python = chosen / "bin/python"
    if python in sampler_home.candidates():
        typer.echo(f"{chosen} is ready: `toolwright run` finds it")
    else:
        typer.echo(f"{chosen} is ready: export TOOLWRIGHT_SGLANG={python}")


def told(folder: Path) -> Iterator[str]:
    """What is fetched, where to, how long it takes."""
    pins = re.findall(
        r"^[\w.-]+\s*==\s*\S+", (packaged(PINS)).read_text(encoding="utf-8"), re.MULTILINE
    )
    sglang = next(pin for pin in pins if pin.startswith("sglang=="))
    yield f"{sglang} with {len(pins) - 1} packages, as {packaged(PINS)} pins them"
    yield f"into {folder}: {DISK}, {TIME}"
