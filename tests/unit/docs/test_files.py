"""docs/operate/files.md has every command in one row, and the files of a run by their names."""

from __future__ import annotations

import re

from console.record import files as record
from engine.offline.evaluate import folder as evaluated
from engine.serving.journal import schema
from learner import lock
from tests.support.docs import DOCS
from tests.support.docs_names import all_commands
from toolwright.model import beginning

PAGE = (DOCS / "operate" / "files.md").read_text(encoding="utf-8")


def test_every_command_has_one_row() -> None:
    rows = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `")]
    commands = set(all_commands())
    told = [name for row in rows for name in re.findall(r"`([^`]+)`", row) if " " in name]
    assert sorted(told) == sorted(commands)


def test_files_of_a_run_are_told_by_their_names() -> None:
    names = {
        record.STEPS, record.EVALUATIONS, record.SAMPLES, record.MEMORY_PAGE, record.IMITATION,
        schema.FILE_NAME, lock.FILE_NAME, beginning.FILE_NAME,
        evaluated.RESULTS, evaluated.PAGE, evaluated.LOG,
    }  # fmt: skip
    assert {name for name in names if f"`{name}`" not in PAGE} == set()
