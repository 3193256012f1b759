"""Who holds a port is told from /proc, and nobody where nobody does."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.support.net import free_port
from toolwright.process import holder
from toolwright.process.holder import LONGEST, holder_of


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_this_process_is_named_as_long_as_it_listens(
    family: socket.AddressFamily, host: str
) -> None:
    port = free_port()  # the kernel's choice may be another listener's port in the other family
    with socket.socket(family) as one:
        one.bind((host, port))
        assert holder_of(port) == ""
        one.listen()
        assert holder_of(port).startswith(f"process {os.getpid()} (python")
    assert holder_of(port) == ""


def test_a_connection_from_the_port_is_no_listener() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with socket.create_connection(server.getsockname()) as client:
            assert holder_of(client.getsockname()[1]) == ""


def test_a_command_line_is_shown_short_and_without_its_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    line = f"   0: 0100007F:{port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 4711 1"
    process = tmp_path / "77"
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(f"header\n{line}\nbroken\n", encoding="utf-8")
    (process / "fd").mkdir(parents=True)
    (process / "fd" / "3").symlink_to("socket:[4711]")
    (process / "cmdline").write_bytes(b"/usr/bin/evil\0\x1b[2J\0" + b"\xff" * 500 + b"\0")
    monkeypatch.setattr(holder, "PROC", tmp_path)
    found = holder_of(port)
    assert found.startswith("process 77 (evil ?[2J ")
    assert found.isprintable()
    assert len(found) == len("process 77 ()") + LONGEST
    (process / "cmdline").write_bytes(b"")
    assert holder_of(port) == "process 77 (of unknown name)"
