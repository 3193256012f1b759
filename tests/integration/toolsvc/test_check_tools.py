"""`toolsvc check --each-tool` on one service of all our tools."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.toolsvc.conftest import Service, running_service
from tests.support.checking import PLUGIN, PROBES, keeps_the_contract
from tests.support.repository import make_repository
from toolsvc.check.checks.calls import CALLS
from toolsvc.check.checks.service import SERVICE
from toolsvc.check.checks.sessions import SESSIONS

pytestmark = pytest.mark.slow

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tools of the service stand on."""
    path = tmp_path_factory.mktemp("check")
    (path / "tally.py").write_text(PLUGIN, encoding="utf-8")
    with sqlite3.connect(path / "counter.sqlite") as database:
        database.execute("CREATE TABLE counter (n)")
        database.execute("INSERT INTO counter VALUES (0)")
    corpus = path / "corpus.jsonl"
    row = {"id": "0", "contents": '"Violin"\nA wooden instrument with four strings.'}
    corpus.write_text(json.dumps(row) + "\n", encoding="utf-8")
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
    options = [f"--set={setting}" for setting in settings]
    with running_service(folder / "errors.log", *tools, *options, *small) as running:
        yield running


@pytest.fixture(scope="module")
def findings(every_tool: Service, folder: Path) -> list[dict[str, Any]]:
    """Of the service once, and of every tool."""
    found = keeps_the_contract(every_tool.address, "--each-tool", folder=folder, probes=PROBES)
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
