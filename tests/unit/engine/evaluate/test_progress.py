"""The progress line of `engine eval` and `engine sample`, on a terminal and in a file."""

from __future__ import annotations

import io

from engine.offline.progress import ProgressLine, score_so_far
from engine.serving.evaluation.tally import SuiteTally
from tests.support.evaluated import row


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Gone(Terminal):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def tally(*rewards: float) -> SuiteTally:
    found = SuiteTally()
    for number, reward in enumerate(rewards):
        found.add(row(number, reward))
    return found


def test_a_file_gets_a_line_at_every_tenth() -> None:
    out = io.StringIO()
    progress = ProgressLine(1000, 150, out, unit="tasks")
    for done in range(150, 1001):
        progress.show(done, [])
    assert progress.pace(1000) > 0
    assert [line.split()[3].split("/")[0] for line in out.getvalue().splitlines()] == [
        "200", "300", "400", "500", "600", "700", "800", "900", "1,000",
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
