"""Questions: deterministic, balanced, split by wordings and numbers; what the reward pays."""

from __future__ import annotations

import re
from itertools import islice
from types import ModuleType

import pytest

from toolwright.types import Sequence, Status, StopReason, Task, Trajectory


def answered(final_text: str, *answers: str) -> Trajectory:
    return Trajectory(
        id="t",
        group_id="g",
        task=Task(id="q", answers=answers),
        sequences=(Sequence(id="t.0", segments=()),),
        status=Status.COMPLETED,
        stop_reason=StopReason.ANSWERED,
        metadata={"final_text": final_text},
    )


@pytest.mark.parametrize("source", ["training", "heldout", "unseen_wordings"])
def test_a_source_depends_on_its_seed_only(task: ModuleType, source: str) -> None:
    stream = getattr(task, source)
    first = list(islice(stream(3), 100))
    assert first == list(islice(stream(3), 100))
    assert [t.messages for t in first] != [t.messages for t in islice(stream(4), 100)]
    assert len({t.id for t in first}) == 100


@pytest.mark.parametrize("source", ["training", "unseen_wordings"])
def test_every_four_questions_ask_for_the_four_operations(task: ModuleType, source: str) -> None:
    stream = getattr(task, source)(5)
    for _ in range(50):
        assert {t.metadata["sign"] for t in islice(stream, 4)} == set(task.OPERATIONS)


def test_every_wording_is_asked_before_one_is_asked_again(task: ModuleType) -> None:
    stream = task.questions(5, task.SEEN, held=False)
    for _ in range(5):
        assert len({q.wording for q in islice(stream, len(task.SEEN))}) == len(task.SEEN)


def test_what_is_held_out_never_stands_in_training(task: ModuleType) -> None:
    def asked(source: str) -> tuple[set[tuple[int, int]], set[str]]:
        tasks = list(islice(getattr(task, source)(1), 4000))
        wordings = {re.sub(r"\d+", "#", str(t.messages[0]["content"])) for t in tasks}
        return {(t.metadata["a"], t.metadata["b"]) for t in tasks}, wordings

    numbers, wordings = asked("training")
    held_numbers, held_wordings = asked("heldout")
    unseen_numbers, unseen_wordings = asked("unseen_wordings")
    assert numbers.isdisjoint(held_numbers | unseen_numbers)
    assert wordings == held_wordings
    assert wordings.isdisjoint(unseen_wordings)


def test_wordings_name_both_numbers_and_no_operator(task: ModuleType) -> None:
    texts = [wording.text for wording in (*task.SEEN, *task.UNSEEN)]
    assert len(set(texts)) == len(texts)
    for text in texts:
        assert (text.count("{a}"), text.count("{b}")) == (1, 1)
        assert not set(text) & set("*+-/")


def test_the_answer_is_what_its_line_of_python_gives(task: ModuleType) -> None:
    for t in islice(task.training(2), 400):
        line = f"{t.metadata['a']}{t.metadata['sign']}{t.metadata['b']}"
        assert t.answers == (str(eval(line)),)
        assert t.answers[0].isdigit()


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        ("<answer> 42</answer>", 1.0),
        (" <answer>42</answer>\n", 1.0),
        ("<answer> 43</answer>", 0.0),
        ("<answer> 42", 0.0),
        ("<answer> 41</answer><answer> 42</answer>", 0.0),
        ("so <answer> 42</answer>", 0.0),
        ("", 0.0),
    ],
)
def test_only_a_closed_answer_with_the_right_number_is_paid(
    task: ModuleType, text: str, correct: float
) -> None:
    assert task.score(answered(text, "42")) == {"correct": correct}
