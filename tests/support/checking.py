"""`toolsvc check` as people run it, and tools in one file that it can bring to everything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from toolsvc.check.checks.calls import CALLS

CHECK = [sys.executable, "-c", "from toolsvc.cli import main; main()", "check"]

OF_CALLS = tuple(word for one in CALLS for word in ("--only", one.name))
"""What becomes of a tool's calls. All else that the suite asks is answered by the host, alike for
every tool in it: `test_check_tools` asks it once."""

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
    return (
        done.returncode,
        json.loads(findings.read_text(encoding="utf-8")) if findings.exists() else {},
        shown,
    )


def keeps_the_contract(
    address: str, *arguments: object, folder: Path, least: int = 0, probes: str = ""
) -> dict[str, Any]:
    """Findings without a failure, of at least `least` passed checks. `probes`: a probe file."""
    if probes:
        path = folder / "probes.toml"
        path.write_text(probes, encoding="utf-8")
        arguments = (*arguments, "--probe", path)
    code, found, shown = check(address, *arguments, folder=folder)
    assert (code, found["failed"]) == (0, 0), shown
    assert found["passed"] >= least, shown
    return found
