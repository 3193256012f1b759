"""Where SGLang's environment is, as the launcher that comes with the package looks for it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from toolwright.imports import load_file
from toolwright.process.packaged import packaged


def usual() -> Path:
    """The folder where `toolwright install-sampler` and `make setup` make it."""
    found: Path = _where().usual()
    return found


def candidates() -> list[Path]:
    """Pythons of such environments, in the order in which they are tried."""
    found: list[Path] = _where().candidates()
    return found


def find() -> Path | None:
    """The Python of the first environment that is there."""
    found: Path | None = _where().find()
    return found


def _where() -> ModuleType:
    return load_file(packaged("deploy/sglang-cpu") / "where.py")
