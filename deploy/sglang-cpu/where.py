"""Where SGLang's environment for this machine's CPU is: looked for in one order by everybody.

Standard library only: `serve.py` imports it under any Python, `console.machine.sampler_home`
inside of the package.
"""

import os
from pathlib import Path

VARIABLE = "TOOLWRIGHT_SGLANG"
"""Environment variable: the Python of an environment with SGLang. It comes first."""
HERE = Path(__file__).resolve().parents[2]
"""The checkout's root; in a wheel, the package."""
FOLDER = ".venv-sglang"


def per_user() -> Path:
    """The folder of this user that `toolwright install-sampler` makes."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "toolwright" / "sglang-cpu"


def usual() -> Path:
    """Where it is made unless the user says otherwise: a checkout has its own."""
    return HERE / FOLDER if (HERE / "pyproject.toml").is_file() else per_user()


def candidates() -> list[Path]:
    """Pythons, in the order in which they are tried."""
    named = os.environ.get(VARIABLE)
    if named:
        return [Path(named).expanduser().absolute()]
    folders = dict.fromkeys((HERE / FOLDER, Path.cwd() / FOLDER, per_user()))
    return [folder / "bin" / "python" for folder in folders]


def find() -> Path | None:
    """The first candidate that is there."""
    return next((python for python in candidates() if python.is_file()), None)
