"""A ToolService in another language keeps the contract: what froze v1."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "node-tool"
INSTALL = ("npm", "install", "--no-audit", "--no-fund", "--prefer-offline")
CHECK = [sys.executable, "-c", "from toolsvc.cli import main; main()", "check"]

MAY_SKIP = {
    "calls-go-to-the-endpoint",
    "a-stored-blob-comes-back",
    "a-blob-is-what-its-hash-says",
    "a-blob-comes-as-it-was-named",
    "a-missing-blob-is-named",
    "a-session-holds-its-blobs",
    "blobs-of-observations-can-be-fetched",
}
"""It has one process and stores no blobs."""


@pytest.fixture(scope="module")
def node_tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the Node.js service."""
    if shutil.which("npm") is None:
        pytest.fail("npm is missing: apt-get install nodejs npm")
    # In its own folder, where .gitignore leaves it: the second time npm has nothing to do.
    installed = subprocess.run(INSTALL, cwd=EXAMPLE, capture_output=True, text=True, timeout=180)
    assert installed.returncode == 0, installed.stderr
    assert not (EXAMPLE / "package-lock.json").exists()
    log = tmp_path_factory.mktemp("node") / "errors.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            ["node", "server.js", "127.0.0.1:0"],
            cwd=EXAMPLE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    yield process.stdout.readline().split()[-1]
    process.terminate()
    assert process.wait(20) == 0
    assert log.read_text() == ""


def test_the_node_service_keeps_the_contract(node_tool: str, tmp_path: Path) -> None:
    findings = tmp_path / "findings.json"
    done = subprocess.run(
        [*CHECK, node_tool, "--json", str(findings)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(findings.read_text())
    assert found["failed"] == 0
    assert {one["name"] for one in found["checks"] if one["outcome"] == "skipped"} == MAY_SKIP
