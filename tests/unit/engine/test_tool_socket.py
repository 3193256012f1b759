"""Where the engine's own tool services listen."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from engine.core.tools.process import ToolProcess
from toolwright.process.sockets import path_fault
from toolwright.recipe import Tool

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("letters", [0, 60, 100, 200])
def test_a_service_has_a_socket_under_every_tmpdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letters: int
) -> None:
    folder = tmp_path / f"job{'0' * letters}"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    service = ToolProcess("t", Tool(serve=("python",)), folder=tmp_path, output=tmp_path / "log")
    assert path_fault(service.address.removeprefix("unix:")) == ""
