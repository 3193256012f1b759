"""Questions: deterministic, balanced, split by operands; the reward pays closed answers only."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
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


def test_sixteen_questions_in_a_row_are_one_of_each_wording(task: ModuleType) -> None:
    stream = task.training(5)
    for _ in range(20):
        asked = [(t.metadata["operation"], t.metadata["wording"]) for t in islice(stream, 16)]
        assert len(set(asked)) == 16


def test_held_out_operands_never_stand_in_training(task: ModuleType) -> None:
    def pairs(source: str) -> set[tuple[int, int]]:
        tasks = islice(getattr(task, source)(1), 5000)
        return {(t.metadata["a"], t.metadata["b"]) for t in tasks}

    seen = pairs("training")
    assert seen.isdisjoint(pairs("heldout"))
    assert seen.isdisjoint(pairs("unseen_wordings"))
    every = [task.held_out(a, b) for a in task.FIRST_OPERAND for b in task.SECOND_OPERAND]
    assert sum(every) / len(every) == pytest.approx(1 / 5, abs=0.01)


def test_wordings_name_both_operands_and_are_told_apart(task: ModuleType) -> None:
    known = [text for texts in task.WORDINGS.values() for text in texts]
    unseen = [text for texts in task.UNSEEN_WORDINGS.values() for text in texts]
    assert len(known) == 16
    assert len({*known, *unseen}) == len(known) + len(unseen)
    for text in (*known, *unseen):
        assert text.count("{a}") == 1
        assert text.count("{b}") == 1


def test_results_are_digits_and_right(task: ModuleType) -> None:
    for question in islice(task.questions(2, held=False), 2000):
        assert str(question.result).isdigit()
        assert question.result == eval(f"{question.a}{question.operation}{question.b}")


def test_no_operation_is_asked_more_than_another(task: ModuleType) -> None:
    counts = Counter(t.metadata["operation"] for t in islice(task.heldout(1), 1024))
    assert set(counts.values()) == {256}


@pytest.mark.parametrize(
    ("final_text", "reward"),
    [
        ("<answer> 42</answer>", 1.0),
        ("<answer> 42</answer>\n", 1.0),
        ("<answer> 43</answer>", 0.0),
        ("<answer> 42", 0.0),  # never closed
        ("so <answer> 42</answer>", 0.0),  # says more than the answer
        ("<answer> 42</answer><answer> 42</answer>", 0.0),
        ("<answer> 42</answer><|im_end|> and on", 0.0),
        ("<python> print(6*7)</python>", 0.0),
        ("", 0.0),
    ],
)
def test_reward(task: ModuleType, final_text: str, reward: float) -> None:
    assert task.score(answered(final_text, "42")) == {"correct": reward}


def test_an_answer_whose_turn_never_ended_is_worth_nothing(task: ModuleType) -> None:
    cut = replace(answered("<answer> 42</answer>", "42"), stop_reason=StopReason.MAX_ACTION_LENGTH)
    assert task.score(cut) == {"correct": 0.0}
