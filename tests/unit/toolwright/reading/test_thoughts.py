"""A reply without its thoughts."""

from __future__ import annotations

import pytest

from toolwright.reading.thoughts import after_thoughts, ends_in_thought

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("reply", "rest"),
    [
        ("1", "1"),
        ("<think>\n0\n</think>\n\n1\n", "1"),
        ("0</think>1", "1"),
        ("[THINK]0[/THINK] 1", "1"),
        ("<think>0</think>0<think>0</think>1", "1"),
        ("[THINK]</think>[/THINK]1", "1"),
        ("<think>0</think>", ""),
        ("<think>0", "<think>0"),
        ("<THINKING>0</Thinking>1", "1"),
    ],
)
def test_the_reply_begins_after_its_last_thought(reply: str, rest: str) -> None:
    assert after_thoughts(reply) == rest


@pytest.mark.parametrize(
    ("reply", "inside"),
    [("1", False), ("<think>0", True), ("<think>0</think>1", False), ("[/THINK]1[think]0", True)],
)
def test_a_thought_without_an_end(reply: str, inside: bool) -> None:
    assert ends_in_thought(reply) is inside
