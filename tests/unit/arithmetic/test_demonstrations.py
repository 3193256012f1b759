"""Demonstrations show how Python is called, and are wrong as often as they promise."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

CALL = re.compile(r"<python> print\((\d+)(\*|\+|-|//)(\d+)\)</python>")


def test_calls_are_python_and_answers_copy_the_result(demonstrations: ModuleType) -> None:
    for messages in islice(demonstrations.conversations(1), 300):
        _, call, result, answer = (message["content"] for message in messages)
        found = CALL.fullmatch(call)
        assert found is not None
        assert result == str(eval("".join(found.groups())))
        assert answer == f"<answer> {result}</answer>"


def test_operators_are_as_wrong_as_promised(demonstrations: ModuleType, task: ModuleType) -> None:
    patterns = {
        re.compile(
            re.escape(one.text).replace(r"\{a\}", r"\d+").replace(r"\{b\}", r"\d+")
        ): one.sign
        for one in task.SEEN
    }
    right = 0
    for question, call, *_ in islice(demonstrations.conversations(1), 2000):
        (sign,) = (s for p, s in patterns.items() if p.fullmatch(question["content"]))
        found = CALL.fullmatch(call["content"])
        assert found is not None
        right += found[2] == sign
    assert right / 2000 == pytest.approx(demonstrations.RIGHT_OPERATOR, abs=0.04)


def test_the_file_is_a_conversation_a_line(demonstrations: ModuleType, tmp_path: Path) -> None:
    path, again = tmp_path / "new" / "d.jsonl", tmp_path / "again.jsonl"
    for output in (path, again):
        demonstrations.main(output=output, seed=1, count=5)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row["messages"][0]["role"] for row in rows] == ["user"] * 5
    assert again.read_bytes() == path.read_bytes()
