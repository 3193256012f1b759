"""A step's form, and what is boxed in it."""

from __future__ import annotations

import pytest

from recipes.searl.steps import StepTags, boxed, final_answer, violations

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
HEAD = "<subtask>ST1: x</subtask><thinking>y</thinking>"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HEAD + CALL, []),
        (HEAD + CALL.replace("{}", '{"code": "<tool_call></tool_call></answer>"}'), []),
        (HEAD.replace("ST1: x", "ST_12") + CALL, []),
        (HEAD.replace("ST1: x", "step 1") + CALL, ["subtask_id"]),
        ("<thinking>y</thinking><subtask>ST1</subtask>" + CALL, ["order"]),
        (CALL + HEAD, ["order"]),
        (HEAD, ["need_one_action"]),
        (HEAD + CALL + CALL, ["need_one_action"]),
        (HEAD + HEAD + CALL, ["need_one_subtask", "need_one_thinking"]),
        (HEAD + CALL.replace("}}", "}"), ["tool_json"]),
        (HEAD + CALL.replace("{}", "[]"), ["tool_json"]),
        (HEAD + CALL.replace('"f"', "3"), ["tool_json"]),
        (HEAD + "<tool_call>" + "[" * 100_000 + "</tool_call>", ["tool_json"]),
        (HEAD + "<answer>4</answer>", ["no_boxed"]),
        (HEAD + "<answer>\\boxed{...}</answer>", ["no_boxed"]),
        ("</subtask><subtask>" + CALL, ["unpaired_subtask"]),
        ("<subtask><subtask></subtask></subtask>", ["unpaired_subtask"]),
        ("", ["need_one_subtask", "need_one_thinking", "need_one_action"]),
    ],
)
def test_violations(text: str, found: list[str]) -> None:
    assert violations(text) == found


def test_tags_are_a_templates() -> None:
    assert violations(HEAD.replace("thinking", "think") + CALL, StepTags(thinking="think")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\\boxed{4}", "4"),
        ("\\boxed{1} then \\boxed{ \\frac{1}{2} }", "\\frac{1}{2}"),
        ("\\boxed{4", None),
        ("\\boxed{}", None),
        ("\\boxed{Your answer}", None),
        ("boxed{4}", None),
    ],
)
def test_boxed(text: str, found: str | None) -> None:
    assert boxed(text) == found


def test_the_last_answer_counts_and_only_what_stands_in_it() -> None:
    text = "<answer>\\boxed{1}</answer><answer>\\boxed{2}</answer>\\boxed{3}"
    assert final_answer(text) == "2"
    assert final_answer("\\boxed{1}") is None
