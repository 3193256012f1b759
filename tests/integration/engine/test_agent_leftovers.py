"""Of a thousand agents that leave processes behind, none has a process 10 s after its end."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LIMIT_S = 10.0
"""Longest life of an agent's processes after its end, in seconds."""


@pytest.mark.timeout(560)
@pytest.mark.parametrize(("sandbox", "count"), [("none", 1000), ("bwrap", 100), ("firejail", 100)])
async def test_no_process_of_an_agent_lives_ten_seconds_after_its_end(
    tmp_path: Path, sandbox: str, count: int
) -> None:
    words = ("-m", "tests.support.agent_leftovers", sandbox, f"{count}", str(tmp_path))
    played = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=PIPE)
    said, _ = await played.communicate()
    assert played.returncode == 0
    figures = json.loads(said.splitlines()[-1])
    print(f"sandbox {sandbox}: {figures}")
    assert figures["agents"] == count
    assert figures["ways"] > 30
    assert figures["seen"] > count / 2
    assert figures["left"] == 0
    assert figures["longest_s"] < LIMIT_S
