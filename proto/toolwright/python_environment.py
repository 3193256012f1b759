"""Makes a Python environment for a program whose packages Toolwright cannot have.

    python -m toolwright.python_environment server.txt --output run/server

pip installs the packages of the requirements file. The environment appears after pip succeeded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Annotated

from toolwright.script import Output, run


def main(requirements: Annotated[Path, "requirements file of pip"], *, output: Output) -> None:
    """Make a Python environment with the packages of a requirements file."""
    unfinished = output.with_name(f"{output.name}.unfinished")
    venv.create(unfinished, with_pip=True, clear=True)
    pip = [str(unfinished / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check"]
    # The environment's own packages alone: a caller's PYTHONPATH would satisfy requirements.
    variables = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*pip, "-q", "-r", str(requirements)], env=variables, check=False)
    if done.returncode:
        sys.exit(f"pip could not install {requirements}: its lines above say why")
    unfinished.rename(output)
    print(f"a Python environment with {requirements.name}: {output}")


if __name__ == "__main__":
    run(main)
