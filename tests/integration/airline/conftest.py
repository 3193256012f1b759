"""The airline's server, where `make test-packages` installed it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def server() -> Path:
    """The server's environment; the test is skipped without it."""
    folder = ROOT / ".venv-airline"
    if not (folder / "ready").exists():
        pytest.skip("there is no .venv-airline: `make test-packages` makes it")
    return folder
