"""What breaks the form, told by who wrote and not by what the text looks like."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.linear import assert_linear
from tests.support.recipes import Part
from tests.unit.se_search.conftest import ran

ASKS = "<think>a</think><search>who built it</search>"
NOTES = "<memory>m</memory>"
ENDS = "<answer>x</answer>"


def found(part: Part, *texts: str, style: str = "se_search", t_max: int = 5, **more: Any) -> Any:
    tags = part("prompts.STYLES")[style].tags
    said = part("score.read")(ran(*texts, **more), tags)
    return part("score.violations")(
        said.pieces,
        n_search=said.searches,
        t_max=t_max,
        invalid_actions=said.invalid_turns,
        tags=tags,
    )


@pytest.mark.parametrize(
    ("texts", "tag", "order", "invalid"),
    [
        ((ENDS,), 0, 0, 0),
        ((ASKS, NOTES + ENDS), 0, 0, 0),
        (("Well. " + ASKS, NOTES + "<search>who else</search>", NOTES + ENDS), 0, 0, 0),
        ((ASKS, ENDS), 0, 1, 0),  # nothing was noted
        ((ASKS, NOTES + NOTES + ENDS), 0, 1, 0),
        ((NOTES + ENDS,), 0, 1, 0),  # there was nothing to note
        (("<think>a<search>who</search>", NOTES + ENDS), 1, 0, 0),
        (("<think><search>who</search>", "</think>" + NOTES + ENDS), 2, 0, 0),
        (("<think>so <answer>x</answer>",), 1, 0, 0),
        (("<think>so <answer>x</answer></think>",), 2, 0, 0),
        ((ASKS, NOTES + "<think>unclosed"), 1, 1, 1),
        (("",), 0, 1, 1),
        ((), 0, 1, 0),
    ],
)  # fmt: skip
def test_counts(part: Part, texts: tuple[str, ...], tag: int, order: int, invalid: int) -> None:
    one = found(part, *texts)
    assert (one.tag, one.order, one.invalid_actions) == (tag, order, invalid)


def test_documents_are_the_environments(part: Part) -> None:
    """The same text, once with real documents and once with the policy's own."""
    real = found(part, "<search>who built it</search>", NOTES + ENDS)
    assert real.count() == 0
    forged = "<documents>Doc 1(Title: x) the answer is x</documents>"
    faked = found(part, "<think>a</think>" + forged + NOTES + ENDS)
    assert (faked.tag, faked.order) == (1, 1)  # the tag, and notes about nothing
    twice = found(part, "<search>who built it</search>", forged + forged + NOTES + ENDS)
    assert (twice.tag, twice.order) == (2, 0)
    closed = found(part, "<search>who built it</search>", "</documents>" + NOTES + ENDS)
    assert (closed.tag, closed.order) == (1, 0)


def test_a_tag_is_no_tag_across_two_actions(part: Part) -> None:
    split = found(part, "<thi", "nk>a</think>" + ENDS)
    assert (split.tag, split.order, split.invalid_actions) == (1, 0, 1)
    spread = found(part, "<think>a", "b</think>" + ENDS)
    assert (spread.tag, spread.order) == (2, 0)  # left open, and closed without its opening


def test_turns_count_whatever_they_were(part: Part) -> None:
    texts = ["hm", "<search> </search>", *[ASKS, *[NOTES + ASKS] * 5], NOTES + ENDS]
    one = found(part, *texts, corrected=(1,))
    assert one.too_many_searches == 1
    assert one.invalid_actions == 2
    assert one.count("per_rule") == 3
    assert one.count() == 1 + 2 + one.tag + one.order


def test_without_notes_documents_lead_on(part: Part) -> None:
    assert found(part, ASKS, ENDS, style="search_r1").count() == 0
    assert found(part, ASKS, "<refine>m</refine>" + ENDS, style="auto_refine").count() == 0
    assert found(part, ASKS, "<memory>m</memory>" + ENDS, style="search_r1").count() == 0  # a word
    one = found(part, ASKS, "<information>x</information>" + ENDS, style="search_r1")
    assert one.tag == 1


MARKS = [f"<{end}{tag}>" for end in ("", "/") for tag in
         ("think", "search", "documents", "memory", "answer")]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from([*MARKS, "a", "<", "/"])).map("".join), max_size=5))
def test_whatever_was_written_is_counted(part: Part, texts: list[str]) -> None:
    one = found(part, *texts)
    marks = sum(text.count("<") for text in texts)
    assert 0 <= one.tag <= 2 * marks
    assert 0 <= one.order <= marks + len(texts) + 1
    assert 0 <= one.count("per_rule") <= 3


def test_counting_is_linear(part: Part) -> None:
    hostile = ("<search>", "</search>", "<documents>", "<think><", "<memory></memory>", "<")
    assert_linear(lambda text: found(part, text), texts=hostile)
