"""report.html: self-contained, escaped, with every part that it promises."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from bench.demo import report
from bench.demo.types import Outcome, Record

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Balance(HTMLParser):
    """Fails on a closing tag that closes nothing; SVG's self-closed elements close themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None: ...

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_nothing_is_fetched(outcome: Outcome) -> None:
    page = report.render(outcome)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", page)
    assert not re.search(r"<(script|link|img|iframe|object)\b", page)
    assert not re.search(r"\b(src|href)\s*=", page)


def test_markup_is_balanced(outcome: Outcome) -> None:
    balance = Balance()
    balance.feed(report.render(outcome))
    assert balance.open == []


def test_every_part_is_there(outcome: Outcome) -> None:
    page = report.render(outcome)
    for words in (
        "from 20% to 95%", "Learning curve", "baseline", "control: learning rate 0",
        "wait for rollouts", "generate", "open session", "queue", "serve.py", "3.11.7",
        "sampled, seed 2, step 50: 1.000", "run.steps", "withheld", "never trained",
    ):  # fmt: skip
        assert words in page
    assert page.count('class="trace"') == 6
    assert 'class="by-model">&lt;python&gt; print(6*7)&lt;/python&gt;' in page
    assert 'class="by-tool">&lt;result&gt; 42&lt;/result&gt;' in page


def test_what_processes_wrote_is_escaped(outcome: Outcome) -> None:
    run = outcome.runs[0]
    first = run.record.samples[0]
    bad = replace(first, segments=(*first.segments, ("model", "<script>alert(1)</script>")))
    record = replace(run.record, samples=(bad, *run.record.samples[1:]))
    page = report.render(replace(outcome, runs=(replace(run, record=record), *outcome.runs[1:])))
    assert "<script" not in page
    assert "serve.py &lt;model&gt;" in page


def test_a_run_that_logged_no_steps_still_has_a_report(outcome: Outcome) -> None:
    run = outcome.runs[0]
    bare = replace(run, record=Record(evaluations=run.record.evaluations))
    assert "Held-out success" in report.render(replace(outcome, runs=(bare,), control=None))
