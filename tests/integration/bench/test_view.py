"""`bench view` measures the command itself over a run that it makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.cli import app

pytestmark = pytest.mark.quick


def test_the_pages_are_measured_over_every_row(tmp_path: Path) -> None:
    file = tmp_path / "view.json"
    done = CliRunner().invoke(app, ["view", "--trajectories", "64", "--json", str(file)])
    assert done.exit_code == 0, done.output
    figures = json.loads(file.read_text(encoding="utf-8"))
    assert figures["rows"] == 64
    found = {one["name"]: one["found"] for one in figures["questions"]}
    assert found["first page"] == found["a word of every row"] == 64
    assert found["nothing found"] == 0
    assert 0 < found["one tool, by time"] < 64
    assert found["one label, by reward"] == 8
    of_sources, bins = 2 * 8, 5
    assert found["curves by a label"] == of_sources + bins, "rewards, success, distribution"
    assert figures["peak_mib"] > 10


def test_a_growing_run_is_looked_at_in_a_browser(tmp_path: Path) -> None:
    file = tmp_path / "view.json"
    done = CliRunner().invoke(app, ["view", "--watch", "2", "--json", str(file)])
    assert done.exit_code == 0, done.output
    first, *_, last = json.loads(file.read_text(encoding="utf-8"))["samples"]
    assert last["rows"] > first["rows"]
    assert min(*last["heaps_mib"], last["server_mib"]) > 0
