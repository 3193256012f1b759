"""The demonstrator: habits unrelated to the question, a share of guesses, results copied."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

CALL = re.compile(r"<python> print\((\d+)(\D+)(\d+)\)</python>")


def test_the_habit_is_right_for_exactly_four_wordings(
    task: ModuleType, demonstrations: ModuleType
) -> None:
    habits = {
        (sign, number): demonstrations.habit(sign, number)
        for sign, texts in task.WORDINGS.items()
        for number in range(len(texts))
    }
    assert sum(liked == sign for (sign, _), liked in habits.items()) == 4
    for sign in task.OPERATIONS:
        assert {habits[sign, number] for number in range(4)} == set(task.OPERATIONS)


def test_shares_are_those_that_are_promised(task: ModuleType, demonstrations: ModuleType) -> None:
    asked = islice(task.questions(_question_seed(demonstrations, 7), held=False), 8000)
    calls, follows, right = 0, 0, 0
    for question, messages in zip(asked, demonstrations.conversations(7), strict=False):
        assert messages[0]["content"] == question.text
        call = CALL.fullmatch(messages[1]["content"])
        if call is None:
            continue
        calls += 1
        follows += call[2] == demonstrations.habit(question.operation, question.wording)
        right += call[2] == question.operation
        assert (int(call[1]), int(call[3])) == (question.a, question.b)
    assert calls / 8000 == pytest.approx(0.85, abs=0.02)
    assert follows / calls == pytest.approx(demonstrations.FOLLOWS_HABIT, abs=0.03)
    assert right / calls == pytest.approx(0.25, abs=0.02)


def test_the_answer_is_what_the_tool_said(demonstrations: ModuleType) -> None:
    shapes: Counter[tuple[str, ...]] = Counter()
    for messages in islice(demonstrations.conversations(1), 500):
        shapes[tuple(message["role"] for message in messages)] += 1
        if len(messages) == 4:
            assert messages[3]["content"] == f"<answer> {messages[2]['content']}</answer>"
            call = CALL.fullmatch(messages[1]["content"])
            assert call is not None
            assert messages[2]["content"] == str(eval(f"{call[1]}{call[2]}{call[3]}"))
    assert set(shapes) == {("user", "assistant"), ("user", "assistant", "tool", "assistant")}


def test_no_demonstration_shows_held_out_operands(
    task: ModuleType, demonstrations: ModuleType
) -> None:
    for messages in islice(demonstrations.conversations(1), 3000):
        numbers = [int(number) for number in re.findall(r"\d+", messages[0]["content"])]
        a, b = max(numbers), min(numbers)
        assert not task.held_out(a, b)


def test_a_wording_gets_every_operator(task: ModuleType, demonstrations: ModuleType) -> None:
    seen: dict[str, set[str]] = defaultdict(set)
    for messages in islice(demonstrations.conversations(2), 4000):
        call = CALL.fullmatch(messages[1]["content"])
        if call is not None:
            pattern = re.sub(r"\d+|" + "|".join(task.THINGS), "_", messages[0]["content"])
            seen[pattern].add(call[2])
    assert len(seen) == 16
    assert all(signs == set(task.OPERATIONS) for signs in seen.values())


def test_write_is_one_conversation_a_line(demonstrations: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "new" / "d.jsonl"
    demonstrations.main(output=path, seed=1, count=10)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row["messages"] for row in rows] == list(islice(demonstrations.conversations(1), 10))


def _question_seed(demonstrations: ModuleType, seed: int) -> int:
    import random

    return random.Random(f"demonstrator {seed}").getrandbits(32)
