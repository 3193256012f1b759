"""Where tool services listen. A journal may come from a stranger: its addresses on other machines
get no token."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from engine.core.tools.process import ToolProcess
from engine.core.tools.service import Service
from toolwright.process.sockets import path_fault
from toolwright.recipe import Tool

pytestmark = pytest.mark.quick
OWN = "10.0.0.5:50061"


@pytest.mark.parametrize(
    ("recorded", "used"),
    [
        (OWN, OWN),
        ("127.0.0.1:50071", "127.0.0.1:50071"),
        ("unix:/tmp/worker", "unix:/tmp/worker"),
        ("192.0.2.7:50061", OWN),
        ("evil.example:1", OWN),
        ("10.0.0.5:50061.evil.example:1", OWN),
    ],
)
async def test_a_session_is_looked_for_where_the_recipe_says(recorded: str, used: str) -> None:
    service = Service("python", Tool(service=OWN), "owner")
    dialled: list[str] = []
    service.link.endpoint_at = dialled.append  # type: ignore[method-assign, assignment]
    service.close_if_open("session", recorded)
    await service.close()
    assert service.link.recorded_address(recorded) == used
    assert dialled == [used]


@pytest.mark.parametrize("letters", [0, 60, 100, 200])
def test_a_service_has_a_socket_under_every_tmpdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letters: int
) -> None:
    folder = tmp_path / f"job{'0' * letters}"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    service = ToolProcess("t", Tool(serve=("python",)), folder=tmp_path, output=tmp_path / "log")
    assert path_fault(service.address.removeprefix("unix:")) == ""
