"""`bench memory` runs and prints what it promises."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from bench.cli import app


def test_the_table_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "memory.json"
    words = ["memory", "--tools", "100", "--questions", "10", "--merges", "30", "--json", str(file)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "question of three subtasks" in done.output and "p99 <= 20" in done.output
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["nodes"] > 100 and report["question"]["count"] == 10
    assert 0 < report["question"]["p50"] <= report["question"]["p99"]
