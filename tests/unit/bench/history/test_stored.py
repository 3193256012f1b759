from __future__ import annotations

from pathlib import Path

import pytest

from bench.history.__main__ import main
from bench.history.events import Finished
from bench.history.findings import HistoryError
from bench.history.stored import read_history, write_history
from tests.support.histories import replaced, valid_history

pytestmark = pytest.mark.quick


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    write_history(file, valid_history())
    assert read_history(file) == valid_history()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b'{"type": "Nothing", "at": 1}',
        b'{"type": "Effect", "at": 1, "session": "s", "call_id": "c", "action": "", "answer": 3}',
        b'{"type":"Effect","at":1,"session":"s","call_id":"c","action":"","answer":[99999999999]}',
        b'{"type":"Effect","at":1,"session":"s","call_id":"c","action":"","answer":["x"]}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_line_that_is_no_event_is_named(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "history.jsonl"
    write_history(file, valid_history()[:2])
    file.write_bytes(file.read_bytes() + line + b"\n")
    with pytest.raises(HistoryError, match="line 3"):
        read_history(file)


def test_the_command_prints_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.jsonl"
    history = valid_history()
    write_history(file, history)
    assert main([str(file)]) == 0
    assert "no invariant is broken" in capsys.readouterr().out
    wrong = [replaced(e, sessions=1) if isinstance(e, Finished) else e for e in history]
    write_history(file, wrong)
    assert main([str(file)]) == 1
    assert "nothing_is_left is broken" in capsys.readouterr().out
    write_history(file, history[1:])
    assert main([str(file)]) == 2
    assert "begins with Planned" in capsys.readouterr().err
    assert main([str(tmp_path / "missing")]) == 2
    assert main([]) == 2
