"""The progress line of `engine eval` and `engine sample`, on a terminal and in a file."""

from __future__ import annotations

import io
from collections.abc import Iterator

from engine.offline.progress import ProgressLine, score_so_far
from engine.serving.evaluation.tally import SuiteTally
from tests.support.evaluated import row


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Gone(Terminal):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def clock(*seconds: float) -> Iterator[float]:
    yield from seconds


def tally(*rewards: float) -> SuiteTally:
    found = SuiteTally()
    for number, reward in enumerate(rewards):
        found.add(row(number, reward))
    return found


def test_pace_counts_the_work_of_this_process() -> None:
    ticks = clock(0.0, 10.0, 10.0)
    progress = ProgressLine(2000, 1000, io.StringIO(), unit="questions", clock=lambda: next(ticks))
    assert progress.pace(1200) == 20.0
    line = progress.line(1200, ["score 0.5", "", "8 in flight\x1b[2J"])
    assert line == "[    10 s] 1,200/2,000 questions, score 0.5, 8 in flight\ufffd[2J"


def test_no_work_and_no_time_are_no_division_by_zero() -> None:
    progress = ProgressLine(0, 0, io.StringIO(), unit="tasks", clock=lambda: 0.0)
    assert (progress.pace(0), progress.line(0, [])) == (0.0, "[     0 s] 0/0 tasks")


def test_a_file_gets_a_line_at_every_tenth() -> None:
    out = io.StringIO()
    progress = ProgressLine(1000, 150, out, unit="tasks")
    for done in range(150, 1001):
        progress.show(done, [])
    assert [line.split()[3].split("/")[0] for line in out.getvalue().splitlines()] == [
        "200", "300", "400", "500", "600", "700", "800", "900", "1,000",
    ]  # fmt: skip


def test_a_file_gets_a_line_after_a_minute_without_one() -> None:
    out, now = io.StringIO(), 0.0
    progress = ProgressLine(10, 0, out, unit="tasks", clock=lambda: now)
    for second in range(1, 151):
        now = float(second)
        progress.show(1 if second >= 90 else 0, ["4 in flight"])
    assert [line.split("]")[0] for line in out.getvalue().splitlines()] == [
        "[    60 s", "[    90 s", "[   150 s",
    ]  # fmt: skip


def test_a_terminal_shows_the_line_in_place_and_removes_it() -> None:
    out = Terminal()
    progress = ProgressLine(10, 0, out, unit="tasks")
    for done in range(3):
        progress.show(done, ["x" * 500])
    progress.end()
    assert "\n" not in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[2K")
    assert max(map(len, out.getvalue().split("\r"))) < 120


def test_a_closed_terminal_does_not_end_the_work() -> None:
    progress = ProgressLine(10, 0, Gone(), unit="tasks")
    progress.show(5, [])
    progress.end()


def test_the_score_so_far_is_of_the_reward_or_of_a_part() -> None:
    found = [tally(1.0, 0.0), tally(1.0, 1.0)]
    assert score_so_far(found, "") == "score 0.750 ± 0.250"
    assert score_so_far(found[:1], "em") == "em 0.500"
    assert score_so_far([SuiteTally()], "em") == score_so_far([SuiteTally()], "") == ""
