"""The program of docs/tools/from-your-trainer.md, word for word, in a process of its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.toolsvc.conftest import Service
from tests.support.docs import DOCS, example
from tests.support.tutorial import ADDRESS

pytestmark = pytest.mark.quick

PAGE = "tools/from-your-trainer.md"


def test_twenty_lines_use_a_session(start: Callable[..., Service], tmp_path: Path) -> None:
    code = example(PAGE, "import uuid")
    assert len(code.strip().splitlines()) <= 20
    assert code.count(ADDRESS) == 1
    service = start("python", "--ready", "1", "--shards", "1", "--memory-mib", "192")
    program = tmp_path / "trainer.py"
    program.write_text(code.replace(ADDRESS, service.address), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = (DOCS / PAGE).read_text(encoding="utf-8").partition("would read:\n\n```\n")[2]
    assert done.stdout == shown.partition("```")[0]
