"""How trajectories read, and which ones are shown."""

from __future__ import annotations

import json

from console.record.files import sample
from console.record.types import Record, Sample
from console.report.suites import NamedSuite
from console.report.transcript import (
    LONGEST,
    as_text,
    before_and_after,
    segments,
)
from tests.support import run_folders


def read(at: int, index: int, *, right: bool = True, **more: object) -> Sample:
    row = {**run_folders.sample(at, index, right=right), **more}
    found = sample(json.loads(json.dumps(row)))
    assert found is not None
    return found


def test_what_a_policy_wrote_steers_no_terminal() -> None:
    wild = [{"author": "model", "text": "\x1b[2J\x07 \u202e[red]"}]
    text = as_text(read(0, 0, segments=wild)).plain
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    assert "[red]" in text


def test_long_texts_are_shortened_and_say_by_how_much() -> None:
    ((_, text),) = segments(read(0, 0, segments=[{"author": "tool", "text": "x" * 10_000}]))
    assert len(text) < LONGEST + 50
    assert "6,000 characters" in text


def test_the_same_questions_before_and_after() -> None:
    rows = [read(at, index) for at in (0, 40) for index in (3, 1, 2, 0)]
    other = [read(at, 0, suite="other") for at in (0, 40)]
    main = NamedSuite(name="heldout", title="held out", ways={"sampled": "heldout-sampled"})
    before, after = before_and_after(Record(samples=(*other, *rows)), main)
    assert [(s.suite, s.step, s.index) for s in (*before, *after)] == [
        ("heldout-sampled", at, index) for at in (0, 40) for index in (0, 1, 2)
    ]
    # The suite that counts may have none.
    before, after = before_and_after(Record(samples=tuple(other[:1])), main)
    assert [s.suite for s in before] == ["other"] and after == ()
    assert before_and_after(Record(), None) == ((), ())


def test_a_trajectory_is_question_tokens_verdict() -> None:
    assert as_text(read(0, 0)).plain == (
        "What is 6 < 7 times?\n"
        "    <python> print(6*7)</python><result> 42</result><answer> 42</answer><|im_end|>\n"
        "    right"
    )
