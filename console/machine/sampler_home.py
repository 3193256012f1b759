"""Where SGLang's environment is, as the launcher that comes with the package looks for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from toolwright.imports import load_file
from toolwright.process.packaged import packaged

_WHERE = load_file(packaged("deploy/sglang-cpu") / "where.py")
usual: Callable[[], Path] = _WHERE.usual
"""The folder where `toolwright install-sampler` and `make setup` make it."""
candidates: Callable[[], list[Path]] = _WHERE.candidates
"""Pythons of such environments, in the order in which they are tried."""
find: Callable[[], Path | None] = _WHERE.find
"""The Python of the first environment that is there."""
