"""`toolsvc serve --backend ray` with a cluster of its own, and what keeps it from starting."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.checking import PLUGIN, PROBES, keeps_the_contract

from .conftest import Service

pytestmark = pytest.mark.slow

RAY = ("--backend", "ray")


@pytest.fixture
def short_folder() -> Iterator[str]:
    """Ray puts sockets there."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        yield folder


def test_it_is_for_this_machine_alone_keeps_the_contract_and_leaves_nothing(
    start: Callable[..., Service],
    short_folder: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", short_folder)
    (tmp_path / "tally.py").write_text(PLUGIN, encoding="utf-8")
    service = start(
        str(tmp_path / "tally.py"), *RAY, "--hosts", "2", "--host-cpus", "0.5",
        "--host-memory-mib", "256",
    )  # fmt: skip
    processes = psutil.Process(service.process.pid).children(recursive=True)
    listening = {
        at.laddr.ip
        for one in processes
        for at in one.net_connections("inet")
        if at.status == psutil.CONN_LISTEN
    }
    assert listening
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
    keeps_the_contract(service.address, folder=tmp_path, least=100, probes=PROBES)
    service.process.terminate()
    assert service.process.wait(60) == 0
    assert not psutil.wait_procs(processes, timeout=20)[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--ray-address", "127.0.0.1:9"), "no Ray cluster answers at 127.0.0.1:9 ("),
        (("--workers", "2"), "--workers, --advertise and --worker-port are for one machine: "),
        (("--backend", "local", "--hosts", "2"), "--ray-address, --hosts and --host-... are for"),
    ],
)
def test_what_cannot_be_is_said_at_once(
    serve_fails: Callable[..., str], arguments: tuple[str, ...], says: str
) -> None:
    said = serve_fails("finish", *RAY, *arguments, environment=dict(os.environ))
    assert said.startswith(f"toolsvc: {says}")
