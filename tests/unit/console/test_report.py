"""report.html: self-contained, escaped, and not a figure on it that summary.json lacks."""

from __future__ import annotations

import json
import re
import shlex
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from typer.testing import CliRunner

from console.cli import app
from console.record.files import MEMORY_PAGE
from console.report import write
from console.report.page import shown
from tests.support import run_folders
from tests.support.run_folders import evaluation, lines, sample, step

VOID = {"meta", "br", "hr", "img", "link", "input"}
ELSEWHERE = {"style", "title", "svg", "pre"}
"""Elements whose figures are other data: of plots, of the settings."""


class Page(HTMLParser):
    """What the page shows: `figures` are (place, form, value, text); `loose` is all other text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.figures: list[tuple[str, str, str | None, str]] = []
        self.loose = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        self.open.append((tag, dict(attrs)))
        if "data-figure" in dict(attrs):
            found = dict(attrs)
            place, form = found["data-figure"], found["data-form"]
            assert place is not None and form is not None
            self.figures.append((place, form, found.get("value"), ""))

    def handle_startendtag(self, tag: str, attrs: object) -> None: ...

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if any("data-figure" in attrs for _, attrs in self.open):
            place, form, value, text = self.figures[-1]
            self.figures[-1] = (place, form, value, text + data)
        elif not any(tag in ELSEWHERE or attrs.get("class") == "trace" for tag, attrs in self.open):
            self.loose += data


def report(*runs: Path) -> tuple[str, dict[str, Any]]:
    paths = write(runs, runs[0] / "report.html")
    return paths.report.read_text(encoding="utf-8"), json.loads(
        paths.summary.read_text(encoding="utf-8")
    )


def place(data: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


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


def test_nothing_is_fetched(seeds: list[Path]) -> None:
    page, _ = report(*seeds)
    assert not re.search(r"https?:|[^<]//[a-z]|@import|url\(", page)
    assert not re.search(r"<(script|link|img|iframe|object)\b", page)
    assert not re.search(r"\b(src|href)\s*=", page)


def test_every_figure_is_in_the_summary(seeds: list[Path], tmp_path: Path) -> None:
    for runs in (seeds, seeds[:1], [bare(tmp_path / "bare")]):
        text, data = report(*runs)
        page = Page(text)
        for pointer, form, value, said in page.figures:
            figure = place(data, pointer)
            assert said == shown(figure, form), pointer
            assert value is None or float(value) == figure, pointer
        assert len(page.figures) > 10
        # Words of the page itself have no figures.
        assert not re.search(r"\d", page.loose), re.findall(r".{20}\d.{20}", page.loose)


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
    text, _ = report(run)
    assert "<script" not in text and "onload='x'" not in text and "\x1b" not in text
    assert "49" not in re.sub(r"[\d.]{3,}", "", text.split("</style>")[1].split("<svg")[0])
    Page(text)


def test_a_run_that_has_made_no_step_has_a_report(tmp_path: Path) -> None:
    run_folders.resolved(tmp_path)
    text, data = report(tmp_path)
    assert data["headline"] == "Too early to say"
    assert "0 of 50 steps are made" in text and "No step has been made" in text


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
    text, data = report(other, run)  # beside the other's report
    assert (other / data["pages"][0]["file"]).resolve() == run / MEMORY_PAGE
    (link,) = re.findall(r'<a href="([^"]*)">', text)
    assert (other / unquote(unescape(link))).resolve() == run / MEMORY_PAGE


def test_a_page_of_many_steps_stays_small(tmp_path: Path) -> None:
    lines(tmp_path / "learner.jsonl", (step(n) for n in range(1, 3000)))
    text, data = report(tmp_path)
    assert len(text) < 1_000_000
    assert all(len(line["x"]) <= 300 for plot in data["plots"] for line in plot["lines"])
