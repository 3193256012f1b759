"""The two answers of a trace, out of whatever a policy wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.linear import assert_linear
from tests.support.recipes import Part
from tests.unit.mtr.conftest import answer, call


@pytest.mark.parametrize(
    ("reasoning", "said"),
    [
        ("the answer is Paris.", "Paris"),
        ("the answer is Paris", "Paris"),
        ("So Answer: **Paris**, I think. No", "Paris**, I think"),
        ("Answer : Paris\nor not", "Paris"),
        ("answer is: Paris\r\nmore", "Paris"),
        ("first the answer is Rome. No, the answer is Paris!", "Paris"),
        ("the answer is J. R. R. Tolkien. He wrote", "J. R. R. Tolkien"),
        ("the answer is St. Petersburg.", "St. Petersburg"),
        ("the answer is 3.5 km.</think>", "3.5 km"),
        ("it is \\boxed{4}.", "4"),
        ("the answer is \\boxed{4}. Right?", "4"),
        ("\\boxed{4}, so the answer is four.", "four"),
        ("\\boxed{4}, so the answer is", "4"),
        ("the answer is 5, that is \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{4", None),
        ("the answers are many, and answering is hard", None),
        ("the answer is .", None),
        ("", None),
        ("the answer is \ud800.", "\ud800"),
        ("The answer is Paris. Now I give the final answer:", "Paris"),
        ("the answer is Paris. \\boxed{}", "Paris"),
        ("the answer is Rome. the answer is \\boxed{ }", "Rome"),
        ("\\boxed{4} \\boxed{}", "4"),
        ("the answer is Rome, or \\boxed{Oslo}. The final answer:", "Oslo"),
        ("So the answer is No. Both were born in 1950.", "No"),
        ("the answer is No. 5. Right?", "No. 5"),
        ("the answer is Henry V. He won.", "Henry V"),
        ("the answer is Malcolm X. Born in Omaha", "Malcolm X"),
        ("the answer is Elizabeth I. England", "Elizabeth I"),
        ("the answer is B. Because", "B"),
        ("the answer is vitamin C. It heals", "vitamin C"),
        ("the answer is I. M. Pei. He built", "I. M. Pei"),
        ("the answer is John F. Kennedy. He was", "John F. Kennedy"),
        ("the answer is Dr. No. The film", "Dr. No"),
        ("the answer is J.", "J"),
    ],
)
def test_what_reasoning_names(part: Part, reasoning: str, said: str | None) -> None:
    assert part("answers.said_in")(reasoning) == said


def test_the_reasoning_is_what_the_policy_said_before_its_answer(part: Part) -> None:
    found = part("answers.intermediate_answer")
    assert found([call(town="x"), answer("Rome", "Paris")]) == "Paris"
    assert found(["<think>the answer is Oslo.</think>" + call(), answer("Rome")]) == "Oslo"
    assert found([answer("the answer is Rome")]) is None, "the answer itself is none"
    assert found([call(note="the answer is Oslo."), answer("Rome")]) is None, "nor is a call"
    assert found(["<tool_call>the answer is Oslo", answer("Rome")]) is None, "nor an open one"
    assert found(["<think>the answer is Rome."]) is None, "it never came to an end"
    assert found([]) is None
    late = "<answer>a</answer>the answer is Oslo.<answer>b</answer>"
    assert found([late]) == "Oslo"


def test_the_last_block_is_the_final_answer(part: Part) -> None:
    found = part("answers.final_answer")
    assert found("<think><answer>a</think><answer> b </answer>") == "b"
    assert found("<answer>a") is None
    assert found("a</answer>") is None
    assert found("<answer></answer>") == ""


@given(st.text(max_size=200))
def test_any_text_is_read(part: Part, text: str) -> None:
    found = part("answers.intermediate_answer")([text, text + "<answer>x</answer>"])
    assert found is None or found.strip() == found != ""


def test_reading_is_linear(part: Part) -> None:
    worst = ("answer is ", "answer", "answer \t", "\\boxed{", "}", "A.", "St.", ". ", "<tool_call>",
             "</answer>", "<answer>", "answer is \\boxed{", "\\boxed{}", "answer: No. ",
             "answer is I. ")  # fmt: skip
    for name in ("said_in", "without_calls", "final_answer"):
        assert_linear(part(f"answers.{name}"), texts=worst)
    assert_linear(lambda text: part("answers.intermediate_answer")([text, text]), texts=worst)
