"""What a judge's reply says, read the same way for rewards, evaluations and the tool `judge`."""

from __future__ import annotations

import time

import pytest

from toolwright.reading.verdicts import verdict

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("1", 1),
        ("0\n", 0),
        ("It is the same.\n\n1.", 1),
        ("<think>0 or 1? 0</think>\n1", 1),
        ("reasons whose opening tag the template wrote</think>\n\n0", 0),
        ("<think></think>\n\n1", 1),
        ("[THINK]0[/THINK]1", 1),
        ("Verdict: **0**", 0),
        ("Score: 1.", 1),
        ("**Verdict**: 1", 1),
        ("My final verdict is 0", None),
        ("The verdict is 0", 0),
        ("\\boxed{1}", 1),
        ("1\nbecause it is", None),
        ("0 or 1", None),
        ("10", None),
        ("0.5", None),
        ("1.0", None),
        ("-1", None),
        ("yes", None),
        ("", None),
        ("</think>", None),
        ("<think>1", None),
        ("<think>\nThe question is easy.\nStep 1", None),
        ("<think>draft</think> <think>again\n1", None),
        ("<THINKING>\n1", None),
        ("Step 1", None),
        ("The answer has 1", None),
        ("It is right in part 0", None),
        ("1\n" + " " * 300 + "x" * 300, None),
    ],
)
def test_the_last_line_is_only_the_verdict(reply: str, found: int | None) -> None:
    assert verdict(reply) == found


@pytest.mark.parametrize("reply", ["1", "0", "thoughts</think>1", "It is\n1"])
def test_a_reply_that_was_cut_has_no_verdict(reply: str) -> None:
    assert verdict(reply, cut=True) is None


@pytest.mark.parametrize("part", ["<think>", "*", "Verdict:", " ", "1", "\\boxed{", "</think>1\n"])
def test_a_reply_is_read_in_linear_time(part: str) -> None:
    began = time.process_time()
    verdict(part * 200_000)
    assert time.process_time() - began < 2.0
