"""Numbers and texts, and the choice of one of several."""

from __future__ import annotations

import time

import pytest

from tasks.judging.choices import LONGEST, choice, same_choice
from tasks.judging.numbers import number_of, same_number_or_text


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("42", "42.0"),
        ("1,234", "1234"),
        ("3.14159", "3.1416"),
        ("1/2", "0.5"),
        (r"\frac{1}{2}", "1/2"),
        (r"$\dfrac{3}{4}$", "0.75"),
        ("50%", r"50\%"),
        ("-1e3", "-1000"),
        ("\u22125", "-5"),
        (r"90^\circ", "90"),
        (r"\text{Evelyn}", "evelyn"),
        (r"\left( 3, 4 \right)", "(3,4)"),
        ("x + 1.", "x+1"),
    ],
)
def test_the_same(answer: str, gold: str) -> None:
    assert same_number_or_text(answer, ["nothing", gold])


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("42", "43"),
        ("3.14", "3.1416"),
        ("", "0"),
        ("0", "0.0001"),
        ("1/0", "1"),
        ("nan", "1"),
        ("inf", "1e400"),
        ("1,23", "123"),
        ("x+1", "1+x"),
        ("", ""),
        ("9" * 2000, "9" * 2000),
    ],
)
def test_not_the_same(answer: str, gold: str) -> None:
    assert not same_number_or_text(answer, [gold])


@pytest.mark.parametrize(
    "text", ["1" * 400, "1e999", "infinity", "\u0661\u0662", "1..2", "--1", "1e", "e5"]
)
def test_what_is_no_finite_number(text: str) -> None:
    assert number_of(text) is None


@pytest.mark.parametrize("text", [",111" * 100_000, "\\text{" * 100_000, "1" * 10**6 + "x"])
def test_hostile_numbers_take_linear_time(text: str) -> None:
    started = time.process_time()
    assert not same_number_or_text(text, ["1"])
    choice(text)
    choice("answer is " * 100_000)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("(c)", "C"),
        ("**D**.", "D"),
        ("B) Paris", "B"),
        ("A. A cat", "A"),
        ("The answer is (C).", "C"),
        ("Option A is tempting, but the answer is: D", "D"),
        ("A. is wrong, since it is hot. The answer is B", "B"),
        ("I. think so. The answer is (C).", "C"),
        ("The answer is B, not option A.", "B"),
        ("The answer is B. No: the answer is C.", "C"),
        ("Option A, or rather choice D", "D"),
        ("x" * LONGEST + "y" * (LONGEST - 7) + "B. none", None),
        ("x" * LONGEST + "B. " + "y" * (LONGEST - 3), None),  # no beginning, but for the cut
        ("$\\text{x}$", None),
        ("A cat", None),
        ("the answer is A cat", None),
        ("I think so", None),
        ("Z", None),
        ("", None),
    ],
)
def test_a_letter_is_read_where_it_is_no_word(text: str, letter: str | None) -> None:
    assert choice(text) == letter


def test_letters_and_their_texts_are_one_choice() -> None:
    options = {"A": "a red bus", "B": "Green"}
    assert same_choice("(B)", ["B"])
    assert same_choice("green", ["B"], options)
    assert same_choice("B", ["green."], options)
    assert same_choice("the red bus", ["A red bus"])
    assert not same_choice("red", ["B"], options)
    assert not same_choice("A", ["B"], options)
    assert not same_choice("C", ["Green"], options)
    assert not same_choice("", ["B"], options)
    assert not same_choice("the", [""], options)
