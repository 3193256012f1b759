"""Where sockets lie if TMPDIR is long."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from tests.support.rpc_service import Service, list_tools, served
from toolwright.process.sockets import LONGEST_PATH, folder_for_sockets, path_fault
from toolwright.rpc.errors import ListenError

pytestmark = pytest.mark.quick


@pytest.fixture
def long_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / ("job-" + "0" * 100)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_long_tmpdir_holds_no_sockets(long_temporary: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="toolwright-", dir=folder_for_sockets()) as folder:
        assert not folder.startswith(str(long_temporary))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{folder}/tools.sock")


def test_a_short_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    assert folder_for_sockets() == "/dev/shm"


@pytest.mark.usefixtures("long_temporary")
def test_nowhere_to_go_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwright.process.sockets._SHORT", ("/no/such/folder",))
    with pytest.raises(OSError, match=r"^TMPDIR=.* is too long for sockets.*set TMPDIR to"):
        folder_for_sockets()


@pytest.mark.parametrize("letter", ["x", "ü"])
async def test_a_long_path_is_named_as_what_it_is(long_temporary: Path, letter: str) -> None:
    path = f"{long_temporary}/{letter}"
    assert str(LONGEST_PATH) in path_fault(path)
    with pytest.raises(ListenError, match=f"{LONGEST_PATH} at most: shorten it"):
        async with served(Service(), f"unix:{path}") as address:
            await list_tools(address)
