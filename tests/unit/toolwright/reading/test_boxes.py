"""The last whole box, whatever a policy writes around it."""

from __future__ import annotations

import time

import pytest

from toolwright.reading.answers import last_box

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"\boxed{42}", "42"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{1} or \boxed{2}", "2"),
        (r"\boxed{1} or \boxed{2", "1"),
        (r"\boxed{ \boxed{3} }", "3"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"} \boxed {x}", "x"),
        (r"{ { \boxed{4}", "4"),
        (r"\boxed 5", "5"),
        (r"so \boxed -1,234.5.", "-1,234.5"),
        (r"$\boxed B$", "B"),
        (r"\boxed 3/4 is it", "3/4"),
        (r"\boxed{1}, not \boxed 2", "2"),
        (r"write it in \boxed and stop", None),
        (r"\boxed I think", None),
        (r"\boxed 5x", None),
        (r"\boxedtext{5}", None),
        (r"\fbox{7}", "7"),
        ("\\boxed\n  {8}", "8"),
        (r"\\boxed{6}", None),  # a line break and a word
        ("", None),
    ],
)
def test_braces_of_a_box_are_balanced(text: str, found: str | None) -> None:
    assert last_box(text) == found


LARGE = 300_000


@pytest.mark.parametrize("text", ["{" * LARGE, r"\boxed{" * 50_000, "\\" * LARGE, "}" * LARGE])
def test_hostile_texts_take_linear_time(text: str) -> None:
    started = time.process_time()
    assert last_box(text) is None
    assert time.process_time() - started < 5


def test_a_box_that_holds_nothing_may_be_passed_over() -> None:
    assert last_box(r"\boxed{4} \boxed{ }") == ""
    assert last_box(r"\boxed{4} \boxed{ }", empty=False) == "4"
    assert last_box(r"\boxed{}", empty=False) is None
