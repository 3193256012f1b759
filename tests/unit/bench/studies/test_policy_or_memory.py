"""`bench study policy-or-memory`: shuffled memories, versions, and the cells that are there."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from bench.studies.policy_or_memory import cells, shuffled, versions

pytestmark = pytest.mark.quick


def test_shuffled_tools_keep_their_names_and_have_the_next_ones_body() -> None:
    codes = {"a": "def a(n):\n    return n + 1", "b": "def b(n):\n    return n * 2"}
    tools = [{"name": name, "code": code, "calls": 3} for name, code in codes.items()]
    found = shuffled({"tools": tools, "edges": []})
    assert [(tool["name"], tool["code"]) for tool in found["tools"]] == [
        ("a", "def a(n):\n    return n * 2"),
        ("b", "def b(n):\n    return n + 1"),
    ]
    assert found["edges"] == []
    assert tools[0]["code"] == codes["a"]


def test_versions_are_those_at_which_iterations_begin(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "memory.sqlite") as store:
        store.execute("create table changes (version integer, name text)")
        rows = [(1, "r/iteration 0"), (2, "r/g0000001/ab"), (3, "r/iteration 12")]
        store.executemany("insert into changes values (?, ?)", rows)
    assert versions(tmp_path / "memory.sqlite") == {0: 1, 12: 3}


def test_cells_are_the_runs_own_and_the_finished_evaluations(tmp_path: Path) -> None:
    own = {"reward": 0.5, "stderr": 0.1, "n": 4}
    lines = [
        {"suite": "heldout-greedy", "step": 45, **own},
        {"suite": "without-memory-greedy", "step": 0, **own},
        {"suite": "heldout-sampled", "step": 0, **own},
        {"suite": "heldout-greedy", "step": 30, **own},
    ]
    run = tmp_path / "seed-1"
    run.mkdir()
    (run / "evaluations.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    for name, complete in (("other", True), ("shuffled", False)):
        folder = tmp_path / "home/step-5" / name
        folder.mkdir(parents=True)
        suite = {"name": name, "score": 0.25, "standard_error": 0.2, "n": 4}
        text = json.dumps({"complete": complete, "suites": [suite]})
        (folder / "results.json").write_text(text, encoding="utf-8")
    found = cells(run, tmp_path / "home")
    assert set(found) == {(45, "own"), (45, "last"), (0, "none"), (5, "other")}
    assert found[5, "other"] == {"right": 0.25, "error": 0.2, "n": 4}
    assert found[45, "last"] == {"right": 0.5, "error": 0.1, "n": 4}
