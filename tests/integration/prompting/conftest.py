"""The engine's small world, and a search service over the example's passages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engine.conftest import codec, world
from tests.integration.toolsvc.conftest import Service, start_service
from toolwright.process.packaged import packaged

__all__ = ["codec", "world"]

FOLDER = packaged("recipes/prompting")


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("search")
    passages = str(FOLDER / "example/passages.jsonl")
    build = ["index", "build", passages, "--output", str(folder / "index"), "--kind", "bm25"]
    subprocess.run([sys.executable, "-m", "toolsvc.cli", *build], check=True, timeout=60)
    log = folder / "service.log"
    running = start_service(log, "search", "--set", f"search.index={folder / 'index'}")
    yield running
    running.process.terminate()
    assert running.process.wait(30) == 0, log.read_text(encoding="utf-8")
