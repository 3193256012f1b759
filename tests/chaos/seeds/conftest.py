"""Chooses the seeds of each file: all of them, or a few where `make test` runs one slice."""

from __future__ import annotations

import pytest

from tests.chaos.seeds.runs import seeds_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Hands a file its seeds; the last letter of a file's name is its number."""
    if "seed" in metafunc.fixturenames:
        file = int(metafunc.module.__name__[-1])
        part = metafunc.config.getoption("--slice")
        metafunc.parametrize("seed", seeds_of(file, part=part))
