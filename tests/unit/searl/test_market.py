"""The market and its demonstrator: what is promised of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import islice
from pathlib import Path

from tests.support.recipes import Part


def test_no_amount_of_a_good_is_shared(part: Part) -> None:
    def asked(name: str) -> set[str]:
        tasks = islice(part(f"market/task.{name}")(3), 2000)
        return {" ".join(task.messages[0]["content"].split()[1:3]) for task in tasks}

    assert asked("training").isdisjoint(asked("heldout"))
    assert len(asked("heldout")) > 50
    first = [task.messages for task in islice(part("market/task.training")(3), 40)]
    assert first == [task.messages for task in islice(part("market/task.training")(3), 40)]


def test_a_right_answer_has_right_tools(part: Part) -> None:
    """No two other rates make the answer of two swaps."""
    choices, swapped = part("market/task.CHOICES"), part("market/task.swapped")
    for amount in part("market/task.AMOUNTS"):
        results = [swapped(swapped(amount, one), two) for one in choices for two in choices]
        assert len(set(results)) == len(results)


def test_a_round_asks_everything_once(part: Part) -> None:
    asked = list(islice(part("market/task.questions")(0, held=False), 24))
    assert len({one.goods for one in asked}) == 24
    rates = part("market/task.RATES")
    for one in asked:
        result = one.amount
        for good in one.goods[:-1]:
            result = result * rates[good] + 1
        assert one.result == result


def test_the_habit_is_right_for_every_fourth_good(part: Part) -> None:
    rates, habit = part("market/task.RATES"), part("market/demonstrations.habit")
    assert [habit(good) == rates[good] for good in part("market/task.GOODS")] == [
        place % 4 == 0 for place in range(12)
    ]


def test_demonstrations_are_in_form_and_do_not_tell_the_rates(part: Part, tmp_path: Path) -> None:
    part("market/demonstrations.main")(output=tmp_path / "d.jsonl", seed=1, count=600)
    parse, violations = part("plan.parse"), part("steps.violations")
    rates = part("market/task.RATES")
    made: Counter[bool] = Counter()
    reused = 0
    for line in (tmp_path / "d.jsonl").read_text(encoding="utf-8").splitlines():
        messages = json.loads(line)["messages"]
        said = [one["content"] for one in messages if one["role"] == "assistant"]
        assert len(parse(said[0], 2).nodes) == len(said) - 2
        assert not any(violations(text) for text in said[1:])
        for text in said[1:]:
            if found := re.search(r'"name": "(\w+)".*return n \* (\d)', text):
                good = re.search(r"ST\d: (\w+) to", text)
                assert good is not None
                made[rates[good[1]] == int(found[2])] += 1
            reused += "<tool_call>" in text and "create_and_execute" not in text
    assert 0.15 < made[True] / made.total() < 0.4
    assert reused > 50
