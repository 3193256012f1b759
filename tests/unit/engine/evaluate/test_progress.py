"""The line of an evaluation: quiet where nobody watches, true where somebody does."""

from __future__ import annotations

import io
from collections.abc import Iterator

from engine.offline.progress import Progress, score_so_far
from engine.serving.evaluation.tally import Tally
from tests.support.evaluated import row


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Gone(Terminal):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def clock(*seconds: float) -> Iterator[float]:
    yield from seconds


def tally(*rewards: float) -> Tally:
    found = Tally()
    for number, reward in enumerate(rewards):
        found.add(row(number, reward))
    return found


def test_the_pace_is_that_of_this_life() -> None:
    told = clock(0.0, 10.0)
    progress = Progress(2000, 1000, io.StringIO(), clock=lambda: next(told))
    line = progress.line(1200, [tally(1.0, 0.0), tally(1.0, 1.0)], "", "8 in flight")
    assert line == (
        "[    10 s] 1,200/2,000 questions, score 0.750 ± 0.250, 20.0/s, 40 s left, 8 in flight"
    )


def test_nothing_is_told_before_there_is_something() -> None:
    progress = Progress(0, 0, io.StringIO(), clock=lambda: 0.0)
    assert progress.line(0, [Tally()], "", "") == "[     0 s] 0/0 questions, 0.0/s"


def test_elsewhere_than_on_a_terminal_there_is_a_line_a_tenth() -> None:
    out = io.StringIO()
    progress = Progress(1000, 150, out)
    for done in range(150, 1001):
        progress.show(done, [], "", "")
    assert [line.split()[3].split("/")[0] for line in out.getvalue().splitlines()] == [
        "200", "300", "400", "500", "600", "700", "800", "900", "1,000",
    ]  # fmt: skip


def test_elsewhere_a_minute_in_which_nothing_is_done_has_a_line() -> None:
    out, now = io.StringIO(), 0.0
    progress = Progress(10, 0, out, clock=lambda: now)
    for second in range(1, 151):
        now = float(second)
        progress.show(1 if second >= 90 else 0, [], "", "4 in flight")
    assert [line.split("]")[0] for line in out.getvalue().splitlines()] == [
        "[    60 s", "[    90 s", "[   150 s",
    ]  # fmt: skip


def test_on_a_terminal_it_stands_in_place_and_goes_away() -> None:
    out = Terminal()
    progress = Progress(10, 0, out)
    for done in range(3):
        progress.show(done, [], "", "x" * 500)
    progress.end()
    assert "\n" not in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[2K")
    assert max(map(len, out.getvalue().split("\r"))) < 120


def test_a_terminal_that_was_closed_ends_nothing() -> None:
    progress = Progress(10, 0, Gone())
    progress.show(5, [], "", "")
    progress.end()


def test_a_part_may_be_told_of() -> None:
    found = [tally(1.0, 0.0)]
    assert score_so_far(found, "em") == ["em 0.500"]
    assert score_so_far([Tally()], "em") == []
