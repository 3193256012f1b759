"""`toolsvc check` as people run it: PostgreSQL, workers, TLS, and what goes wrong."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.toolsvc.conftest import Service
from tests.support.checking import OF_CALLS, PLUGIN, PROBES, check, keeps_the_contract
from tests.support.postgres import MOST_POLICIES, POLICIES, postgres
from tests.support.tls import make_pem

pytestmark = pytest.mark.quick

POSTGRES_TABLES = f"""{POLICIES}
CREATE TABLE counter (n int);
GRANT SELECT, INSERT ON counter TO policy;
"""
POSTGRES_PROBES = """
[sql]
effect = "<sql>INSERT INTO counter VALUES (1)</sql>"
read = "<sql>SELECT count(*) FROM counter</sql>"
sleep = "<sql>INSERT INTO counter SELECT 1 FROM pg_sleep(@seconds@)</sql>"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("check")
    (path / "tally.py").write_text(PLUGIN, encoding="utf-8")
    return path


@pytest.mark.slow
def test_sql_on_postgresql_keeps_the_contract(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    with postgres(POSTGRES_TABLES) as server:
        # A role for every session that the suite holds at once.
        dsn = f"sql.dsn={server.policies(MOST_POLICIES)}"
        service = start("sql", "--set", dsn, "--set", "sql.writable=true")
        probes = {"folder": tmp_path, "least": 60, "probes": POSTGRES_PROBES}
        keeps_the_contract(service.address, *OF_CALLS, **probes)
        service.process.terminate()
        assert service.process.wait(20) == 0
        assert server.ask("SELECT count(*) FROM counter") == 0


@pytest.mark.slow
def test_workers_keep_the_contract(
    start: Callable[..., Service], folder: Path, tmp_path: Path
) -> None:
    service = start(str(folder / "tally.py"), "--workers", "2")
    found = keeps_the_contract(service.address, folder=tmp_path, probes=PROBES)
    outcomes = {one["name"]: one["outcome"] for one in found["checks"]}
    assert outcomes["calls-go-to-the-endpoint"] == "passed"


def test_a_service_behind_tls_is_checked(
    start: Callable[..., Service], folder: Path, tmp_path: Path
) -> None:
    pem = make_pem(tmp_path / "tls")
    service = start(str(folder / "tally.py"), *pem.options)
    only = ("--only", "health-of-the-server", "--only", "a-cut-connection-stops-nothing")
    words = ("--tls-ca", pem.authority, *only)
    keeps_the_contract(service.address, *words, folder=tmp_path, least=2, probes=PROBES)


@contextmanager
def broken(name: str) -> Iterator[str]:
    """The address of a service with a fault."""
    serve = [sys.executable, "-m", "tests.support.conformance.broken", name]
    command = [*serve, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().split()[-1]
        process.terminate()


def test_a_breach_is_told_and_ends_in_exit_code_1(tmp_path: Path) -> None:
    with broken("runs-twice") as address:
        only = ("--only", "a-repetition-has-no-effect")
        code, found, shown = check(address, *only, folder=tmp_path)
    assert code == 1
    assert found["failed"] == 1
    assert re.search(r"was seen: +one call_id sent three times: 3 effects, not 1", shown)


def test_no_service_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    code, found, shown = check("127.0.0.1:9", folder=tmp_path)
    assert (code, found) == (2, {})
    (line,) = shown.splitlines()
    assert line.startswith("toolsvc: no tool service answers at 127.0.0.1:9: ")
