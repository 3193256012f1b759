"""A ToolService in another language keeps the contract: what froze v1."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node_tool import node_tool
from toolsvc.check.checks import ALL
from toolsvc.check.types import Rule

CHECK = [sys.executable, "-c", "from toolsvc.cli import main; main()", "check"]

MAY_SKIP = {
    "calls-go-to-the-endpoint",
    "a-stored-blob-comes-back",
    "a-blob-is-what-its-hash-says",
    "a-blob-comes-as-it-was-named",
    "a-missing-blob-is-named",
    "a-session-holds-its-blobs",
    "blobs-of-observations-can-be-fetched",
    *(
        check.name
        for check in ALL
        if check.rule in (Rule.HELD, Rule.STREAM, Rule.FORK)
        and check.name != "what-does-not-fork-is-not-forked"
    ),
}
"""It has one process and stores no blobs, and came before GetSession, StreamCalls and forks."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with node_tool(tmp_path_factory.mktemp("node") / "errors.log") as address:
        yield address


def test_the_node_service_keeps_the_contract(address: str, tmp_path: Path) -> None:
    findings = tmp_path / "findings.json"
    done = subprocess.run(
        [*CHECK, address, "--json", str(findings)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(findings.read_text())
    assert found["failed"] == 0
    assert {one["name"] for one in found["checks"] if one["outcome"] == "skipped"} == MAY_SKIP
