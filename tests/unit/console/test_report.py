"""report.html: one file with the figures of summary.json, in which a stranger's words stay data."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from console.cli import app
from console.record.files import MEMORY_PAGE
from console.report import write
from tests.support import run_folders
from tests.support.run_folders import evaluation, lines, sample, step
from tests.support.stills import data_of, plots_of


def report(*runs: Path) -> tuple[str, dict[str, Any]]:
    paths = write(runs, runs[0] / "report.html")
    return paths.report.read_text(encoding="utf-8"), json.loads(
        paths.summary.read_text(encoding="utf-8")
    )


@pytest.fixture
def seeds(tmp_path: Path) -> list[Path]:
    """Two runs and a control."""
    return [
        run_folders.whole(tmp_path / "seed-1", after=0.9),
        run_folders.whole(tmp_path / "seed-2", after=1.0, seed=2),
        run_folders.whole(tmp_path / "control", after=0.2, rate=0.0),
    ]


def bare(folder: Path) -> Path:
    """Steps alone, of a run by hand."""
    lines(folder / "learner.jsonl", (step(n) for n in (1, 2)))
    return folder


def test_the_page_holds_what_the_summary_holds(seeds: list[Path], tmp_path: Path) -> None:
    for runs in (seeds, seeds[:1], [bare(tmp_path / "bare")]):
        page, data = report(*runs)
        assert data_of(page) == {"kind": "report", "data": data}


def test_commands_work_when_copied(seeds: list[Path], tmp_path: Path) -> None:
    run = run_folders.whole(tmp_path / "a 'strange' $(folder)")
    _, data = report(run)
    again, *others = (shlex.split(one["command"]) for one in data["commands"])
    program = str(Path(sys.executable).with_name("toolwright"))
    assert again == ["cd", "/where you stood", "&&", program, "run", "my recipes/recipe.toml"]
    for command in others:
        assert Path(command[0]).is_absolute()
        assert str(run) in command
    engine = Path(sys.executable).with_name("engine")
    assert data["processes"][0]["command"] == f"cd /recipes && {engine} serve '<model>'"
    elsewhere = "cd /recipes && /opt/python/bin/python 'write them.py'"
    assert data["processes"][1]["command"] == elsewhere, "another Python's path stays"
    (run / "report.html").unlink()
    words = next(command for command in others if "report" in command)
    assert CliRunner().invoke(app, words[1:]).exit_code == 0
    assert (run / "report.html").is_file()


HOSTILE = "</title><script>alert(1)</script>\" onload='x' &amp; \x1b[31m \udcff ]]> {{ 7 * 7 }}"


def test_what_strangers_wrote_stays_text(tmp_path: Path) -> None:
    run = run_folders.whole(tmp_path / "a")
    lines(
        run / "learner.jsonl",
        [step(n, **{f"reward/{HOSTILE}": 1.0, f"stop/{HOSTILE}": 1}) for n in (1, 2)],
    )
    strange = [evaluation(HOSTILE, at, 0.5) for at in (0, 2)]
    lines(run / "evaluations.jsonl", strange)
    trace = sample(0, 0, right=False)
    segments = [{"author": HOSTILE, "text": HOSTILE}, *trace["segments"]]
    row = {
        **trace,
        "suite": HOSTILE,
        "segments": segments,
        "answers": [HOSTILE],
        "stop_reason": HOSTILE,
    }
    lines(run / "samples.jsonl", [row])
    told = {"console": {"report": {"headline": HOSTILE, "lead": HOSTILE, "note": HOSTILE}}}
    (run / "console.resolved.json").write_text(json.dumps(told), encoding="utf-8")
    text, data = report(run)
    assert data_of(text)["data"] == data
    assert HOSTILE not in text and "<script>alert" not in text and "\x1b" not in text


def test_a_run_that_has_made_no_step_has_a_report(tmp_path: Path) -> None:
    run_folders.resolved(tmp_path)
    text, data = report(tmp_path)
    assert data["headline"] == "Too early to say"
    assert "0 of 50 steps are made" in str(data["remarks"])
    assert "No step has been made" in text


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    run = run_folders.whole(tmp_path / "a")
    (tmp_path / "file").write_text("", encoding="utf-8")
    for words, said in (
        ([tmp_path / "none"], "none is no run folder"),
        ([tmp_path / "file"], "file is no run folder"),
        ([run, "-o", tmp_path / "file/x.html"], "name another place with --output"),
        ([run, "-o", tmp_path / "a"], "name another place with --output"),
        ([run] * 25, "at most 24"),
    ):
        result = CliRunner().invoke(app, ["report", *map(str, words)])
        assert result.exit_code == 1, result.output
        assert said in result.stderr and result.stderr.count("\n") == 1


def test_the_page_of_a_memory_is_linked_from_where_the_report_lies(tmp_path: Path) -> None:
    run, other = (run_folders.whole(tmp_path / name) for name in ('a & "b" #1', "c"))
    (run / MEMORY_PAGE).write_text("<p>tools</p>", encoding="utf-8")
    assert report(run)[1]["pages"] == [{"what": "the tool memory", "file": MEMORY_PAGE}]
    _, data = report(other, run)  # beside the other's report
    assert (other / data["pages"][0]["file"]).resolve() == run / MEMORY_PAGE


def test_a_page_of_many_steps_stays_small(tmp_path: Path) -> None:
    lines(tmp_path / "learner.jsonl", (step(n) for n in range(1, 3000)))
    text, data = report(tmp_path)
    assert len(text) < 1_000_000
    assert all(len(line["x"]) <= 300 for plot in plots_of(data) for line in plot["lines"])
