"""`toolsvc check` as people run it: all our tools, a plugin in one file, workers, TLS."""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.toolsvc.conftest import Service, start_service
from tests.support.postgres import POLICIES, postgres
from tests.support.repository import make_repository
from tests.support.tls import make_pem
from toolsvc.check.checks.calls import CALLS
from toolsvc.check.checks.service import SERVICE
from toolsvc.check.checks.sessions import SESSIONS

CHECK = [sys.executable, "-c", "from toolsvc.cli import main; main()", "check"]

PLUGIN = """
import asyncio
import time
from pydantic import BaseModel
from toolsvc import Media, Result, Tool, ToolFailed


class Steps(BaseModel):
    add: int
    after: float


class Tally(Tool):
    name = "tally"
    description = "Adds to a tally, after some seconds, and tells it."
    arguments = Steps
    stateful = True

    def open(self, session):
        return [0]

    async def call(self, state, call):
        await asyncio.sleep(call.arguments["after"])
        if call.arguments["add"] < 0:
            raise ToolFailed("a tally only goes up")
        state[0] += call.arguments["add"]
        return str(state[0])


class Thread(Tool):
    name = "thread"
    description = "Does the same by a plain function, which nothing can stop."
    arguments = Steps
    stateful = True

    def open(self, session):
        return [0]

    def call(self, state, call):
        time.sleep(call.arguments["after"])
        state[0] += call.arguments["add"]
        return str(state[0])


class Picture(Tool):
    name = "picture"
    description = "A small picture and a large one."
    parallel_calls = True
    media = True

    def call(self, state, call):
        sizes = (100, 400_000)
        media = (Media(media_type="image/png", data=b"p" * size) for size in sizes)
        return Result(observation=tuple(media))
"""

PROBES = """
[tally]
effect = { add = 1, after = 0 }
read = { add = 0, after = 0 }
sleep = { add = 1, after = "@seconds@" }
fail = { add = -1, after = 0 }

[thread]
effect = { add = 1, after = 0 }
read = { add = 0, after = 0 }
sleep = { add = 1, after = "@seconds@" }

[picture]
media = "any"

[sql]
effect = "<sql>UPDATE counter SET n = n + 1</sql>"
read = "<sql>SELECT n FROM counter</sql>"
"""

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

LEAST = {
    "python": 50,
    "bash": 50,
    "sql": 25,
    "search": 15,
    "swe": 50,
    "tally": 50,
    "thread": 45,
    "picture": 15,
}
"""Checks of calls that must pass with each tool: what it can be brought to is not skipped."""


def check(address: str, *arguments: object, folder: Path) -> tuple[int, dict[str, Any], str]:
    """Exit code, findings, and all that was printed."""
    findings = folder / "findings.json"
    done = subprocess.run(
        [*CHECK, address, "--json", str(findings), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=220,
    )
    shown = done.stdout + done.stderr
    return done.returncode, json.loads(findings.read_text()) if findings.exists() else {}, shown


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tools of the service stand on."""
    path = tmp_path_factory.mktemp("check")
    (path / "tally.py").write_text(PLUGIN)
    (path / "probes.toml").write_text(PROBES)
    with sqlite3.connect(path / "counter.sqlite") as database:
        database.execute("CREATE TABLE counter (n)")
        database.execute("INSERT INTO counter VALUES (0)")
    corpus = path / "corpus.jsonl"
    row = {"id": "0", "contents": '"Violin"\nA wooden instrument with four strings.'}
    corpus.write_text(json.dumps(row) + "\n")
    make_repository(path / "bill")
    build = [sys.executable, "-c", "from toolsvc.cli import main; main()", "index", "build"]
    subprocess.run([*build, str(corpus), "--output", str(path / "index")], check=True)
    return path


@pytest.fixture(scope="module")
def every_tool(folder: Path) -> Iterator[Service]:
    settings = (
        f"sql.databases={folder / 'counter.sqlite'}",
        "sql.writable=true",
        f"search.index={folder / 'index'}",
        f"swe.repositories={folder / 'bill'}",
    )
    tools = ("python", "bash", "sql", "search", "swe", str(folder / "tally.py"))
    small = ("--ready", "2", "--shards", "1", "--memory-mib", "192")
    options = [word for setting in settings for word in ("--set", setting)]
    running = start_service(folder / "errors.log", *tools, *options, *small)
    yield running
    running.process.terminate()
    assert running.process.wait(20) == 0, (folder / "errors.log").read_text()


@pytest.fixture(scope="module")
def findings(every_tool: Service, folder: Path) -> list[dict[str, Any]]:
    """Of the service once, and of every tool."""
    probes = ("--probe", folder / "probes.toml")
    code, found, shown = check(every_tool.address, "--each-tool", *probes, folder=folder)
    failed = [one for one in found["checks"] if one["outcome"] == "failed"]
    assert (code, failed) == (0, []), shown
    return list(found["checks"])


@pytest.mark.parametrize("tool", LEAST)
def test_our_tools_keep_the_contract(findings: list[dict[str, Any]], tool: str) -> None:
    of_it = [one for one in findings if one["tool"] == tool]
    assert [one["name"] for one in of_it] == [check.name for check in CALLS]
    assert sum(one["outcome"] == "passed" for one in of_it) >= LEAST[tool]
    assert all(one["reason"] for one in of_it if one["outcome"] == "skipped")


def test_our_service_keeps_the_contract(findings: list[dict[str, Any]]) -> None:
    of_it = [one for one in findings if not one["tool"]]
    assert [one["name"] for one in of_it] == [check.name for check in (*SERVICE, *SESSIONS)]
    skipped = [one["name"] for one in of_it if one["outcome"] == "skipped"]
    assert skipped == ["calls-go-to-the-endpoint"]


def test_sql_on_postgresql_keeps_the_contract(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    probes = tmp_path / "probes.toml"
    probes.write_text(POSTGRES_PROBES)
    with postgres(POSTGRES_TABLES) as server:
        dsn = f"sql.dsn={server.policies()}"
        service = start("sql", "--set", dsn, "--set", "sql.writable=true")
        code, found, shown = check(service.address, "--probe", probes, folder=tmp_path)
        service.process.terminate()
        assert service.process.wait(20) == 0
        assert server.ask("SELECT count(*) FROM counter") == 0
    assert (code, found["failed"]) == (0, 0), shown
    assert found["passed"] >= 95


def test_workers_keep_the_contract(
    start: Callable[..., Service], folder: Path, tmp_path: Path
) -> None:
    service = start(str(folder / "tally.py"), "--workers", "2")
    probes = ("--probe", folder / "probes.toml")
    code, found, shown = check(service.address, *probes, folder=tmp_path)
    assert (code, found["failed"]) == (0, 0), shown
    outcomes = {one["name"]: one["outcome"] for one in found["checks"]}
    assert outcomes["calls-go-to-the-endpoint"] == "passed"


def test_a_service_behind_tls_is_checked(
    start: Callable[..., Service], folder: Path, tmp_path: Path
) -> None:
    pem = make_pem(tmp_path / "tls")
    service = start(str(folder / "tally.py"), *pem.options)
    only = ("--only", "health-of-the-server", "--only", "a-cut-connection-stops-nothing")
    probes = ("--probe", folder / "probes.toml")
    code, found, shown = check(
        service.address, "--tls-ca", pem.authority, *only, *probes, folder=tmp_path
    )
    assert (code, found["passed"]) == (0, 2), shown


def test_a_breach_is_told_and_ends_in_exit_code_1(tmp_path: Path) -> None:
    serve = [
        sys.executable,
        "-m",
        "tests.support.conformance.broken",
        "runs-twice",
        "--listen",
        "127.0.0.1:0",
    ]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        only = ("--only", "a-repetition-has-no-effect")
        code, found, shown = check(address, *only, folder=tmp_path)
        process.terminate()
    assert code == 1
    assert found["failed"] == 1
    assert re.search(r"was seen: +one call_id sent three times: 3 effects, not 1", shown)


def test_no_service_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    code, found, shown = check("127.0.0.1:9", folder=tmp_path)
    assert (code, found) == (2, {})
    (line,) = shown.splitlines()
    assert line.startswith("toolsvc: no tool service answers at 127.0.0.1:9: ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--only", "no-such-check"), "there is no check no-such-check"),
        (("--probe", "no-such.toml"), "no-such.toml: "),
        (("--tls-ca", "no-such.pem"), "authority no-such.pem: "),
    ],
)
def test_what_cannot_be_checked_is_said(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    code, _, shown = check("127.0.0.1:9", *arguments, folder=tmp_path)
    assert code == 2
    assert shown.startswith(f"toolsvc: {says}")
