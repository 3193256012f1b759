"""Makes a Python environment for a program whose packages Toolwright cannot have.

    python -m toolwright.python_environment server.txt --output run/server

pip installs the packages of the requirements file. Invariants
- The environment is built in its place, because its programs name their interpreter by path.
- The file `ready` exists once pip has succeeded. It holds the requirements.
- What an interrupted start left is made again. Any other folder stays as it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Annotated

from toolwright.script import Output, run

READY = "ready"
UNFINISHED = "unfinished"
"""File of an environment that is being made."""


def main(requirements: Annotated[Path, "requirements file of pip"], *, output: Output) -> None:
    """Make a Python environment with the packages of a requirements file."""
    try:
        wanted = requirements.read_text(encoding="utf-8")
    except OSError as error:
        sys.exit(f"{requirements} cannot be read: {error.strerror}")
    ready, unfinished = output / READY, output / UNFINISHED
    if unfinished.exists():
        shutil.rmtree(output)
    elif ready.is_file() and ready.read_text(encoding="utf-8") == wanted:
        print(f"{output} has the packages of {requirements.name} already")
        return
    elif output.exists() and not (output.is_dir() and not any(output.iterdir())):
        sys.exit(f"{output} exists, made from something else: remove it or name another --output")
    output.mkdir(parents=True, exist_ok=True)
    unfinished.touch()
    venv.create(output, with_pip=True)
    pip = [str(output / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check"]
    # The environment's own packages alone: a caller's PYTHONPATH would satisfy requirements.
    variables = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*pip, "-q", "-r", str(requirements)], env=variables, check=False)
    if done.returncode:
        sys.exit(f"pip could not install {requirements}: its lines above say why")
    ready.write_text(wanted, encoding="utf-8")
    unfinished.unlink()
    print(f"a Python environment with {requirements.name}: {output}")


if __name__ == "__main__":
    run(main)
