"""The arithmetic task's files as modules, as the engine loads them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from toolwright.imports import load_file

FOLDER = Path(__file__).resolve().parents[3] / "recipes/arithmetic"


@pytest.fixture(scope="session")
def task() -> ModuleType:
    return load_file(FOLDER / "task.py")


@pytest.fixture(scope="session")
def demonstrations() -> ModuleType:
    return load_file(FOLDER / "demonstrations.py")
