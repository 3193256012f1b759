"""Text of strangers steers no terminal, wherever the console prints it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from console.cli import app
from console.commands import track
from console.course.session import fail
from console.doctor import visit
from console.doctor.types import Patient, problem
from console.record.course import Began, CourseLog
from console.watch.screen import Screen
from console.watch.status import Status, line
from tests.support import run_folders
from toolwright.page.text import plain

WILD = "\x1b[2J\x1b]0;t\x07\x9b1mwild\u202e"
TAME = "�[2J�]0;t��1mwild�"


def test_what_steers_is_replaced_and_lines_stay_lines() -> None:
    assert plain(f"a\tb\n{WILD}\r") == f"a\tb\n{TAME}�"
    assert plain("a\nb", "") == "a�b"
    assert plain("æøå 東京 🙂") == "æøå 東京 🙂"


def test_sentences_and_lines_of_the_view(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(f"it said {WILD}", 1) == 1
    track._say(WILD)
    said = capsys.readouterr().err
    assert said == f"toolwright: it said {TAME}\ntrack: {TAME}\n"
    out = io.StringIO()
    Screen(Console(file=out, soft_wrap=True)).say(WILD)
    assert out.getvalue() == f"{TAME}\n"
    assert "\x1b" not in line(Status(stage=WILD, doing={"engine": WILD}), 1.0)


def test_status_and_report(tmp_path: Path) -> None:
    run = run_folders.whole(tmp_path / "run")
    with CourseLog(run) as log:
        log.began(Began(at=2.0, pid=1, created=1.0, argv=[], recipe="r", overrides=[]))
        log.ended(1, f"a tool said {WILD}")
    for command in ("status", "report"):
        told = CliRunner().invoke(app, [command, str(run)])
        assert TAME in told.output, command
        assert "\x1b" not in told.output, command


def test_a_tools_name_is_no_markup_for_the_doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of a recipe's tools and services are subjects."""
    finding = problem(f"tool [bold]x[/]{WILD}", f"[red]{WILD}", f"end [/]{WILD}")
    monkeypatch.setattr(visit, "CHECKS", {})
    bare = Patient(environment={})
    monkeypatch.setattr(visit, "_patient", lambda *_: (bare, [finding]))
    assert visit.visit(None, [], as_json=False, bundle=None, with_texts=False)
    out = capsys.readouterr().out
    assert f"tool [bold]x[/]{TAME}: [red]{TAME}" in out
    assert f"end [/]{TAME}" in out
