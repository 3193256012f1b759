"""Questions on which two evaluations differ most."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from engine.cli import app
from engine.offline.evaluate.results.cases import cases, lines
from tests.support.evaluated import evaluation, row

pytestmark = pytest.mark.quick


def said(folder: Path, *texts: tuple[int, str]) -> None:
    samples: list[dict[str, Any]] = [
        {
            "suite": "nq",
            "task_id": f"q{number}",
            "answers": ["Ada"],
            "segments": [{"author": "MODEL", "text": text}],
        }
        for number, text in texts
    ]
    content = "".join(json.dumps(one) + "\n" for one in samples)
    (folder / "samples.jsonl").write_text(content, encoding="utf-8")


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    a = evaluation(tmp_path / "a", {"nq": [row(n, value) for n, value in enumerate((1, 0, 0.5))]})
    b = evaluation(tmp_path / "b", {"nq": [row(n, value) for n, value in enumerate((1, 1, 0.7))]})
    said(a, (1, "an early\x1b text"), (1, "a brute\nforce"))
    said(b, (1, "a chain"))
    return a, b


def test_the_largest_difference_comes_first(both: tuple[Path, Path]) -> None:
    found = cases(*both, 5)
    assert [(one["task_id"], one["a"]["score"], one["b"]["score"]) for one in found] == [
        ("q1", 0.0, 1.0),
        ("q2", 0.5, 0.7),
    ]
    assert [one["task_id"] for one in cases(*both, 1)] == ["q1"]
    assert cases(both[0], both[0], 5) == []


def test_both_texts_stand_below_each_other(both: tuple[Path, Path]) -> None:
    assert list(lines(cases(*both, 5))) == [
        "",
        "nq, q1",
        "  A: 0; right: Ada",
        "     MODEL: a brute\\nforce",
        "  B: 1; right: Ada",
        "     MODEL: a chain",
        "",
        "nq, q2",
        "  A: 0.5",
        "     no text: raise engine.evaluation.samples, and evaluate anew",
        "  B: 0.7",
        "     no text: raise engine.evaluation.samples, and evaluate anew",
    ]


def test_the_command_shows_them_below_its_table(both: tuple[Path, Path]) -> None:
    words = ["eval", "compare", *map(str, both), "--cases", "1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "MODEL: a chain" in done.output and "q2" not in done.output
    data = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert [one["task_id"] for one in data["cases"]] == ["q1"]
    assert "cases" not in json.loads(CliRunner().invoke(app, [*words[:4], "--json"]).output)
