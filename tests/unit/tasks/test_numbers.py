"""Numbers and texts, and the choice of one of several."""

from __future__ import annotations

import time

import pytest

from tasks.judging.choices import LONGEST, choice, same_choice
from tasks.judging.numbers import number_of, same_number_or_text, same_number_or_words


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
        ("5.", "5"),
        (r"12\,345\,678", "12345678"),
        ("12{,}345", "12345"),
        (r"12,\!345", "12345"),
        ("1 234 567", "1234567"),
        (r"120\degree", "120"),
        ("90\u00b0", r"90^{\circ}"),
        ("45 degrees", "45"),
        ("1.5e-3", "0.0015"),
        (r"1.5\times 10^{-3}", "0.0015"),
        ("3\u00d710\u2074", "30000"),
        ("10^-3", "0.001"),
        ("5 cm", "5"),
        (r"5\text{ cm}", "5 centimeters"),
        (r"3\text{ apples}", "3"),
        ("$12.50", "12.5 dollars"),
        ("2 1/2", "2.5"),
        (r"2\frac{1}{2}", "2.5"),
        (r"\emptyset", r"\varnothing"),
        ("\u2205", r"\{ \}"),
        ("1001_2", "1001_{2}"),
        ("1001_{10}", "1001"),
        ("1e-20", "0.00000000000000000001"),
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
        ("1/2", "12"),
        ("(-1,2)", "(1,2)"),
        ("-5", "5"),
        ("100001", "100000"),
        ("10^{-20}", "10^{-21}"),
        ("1e-20", "1e-21"),
        ("0", "1e-30"),
        ("1001_2", "1001"),
        ("1001_2", "9"),
        ("1001 base 2", "1001_3"),
        ("10\u2088", "10"),
        ("5 m", "5 km"),
        (r"5\text{ m}", r"5\text{ m}^2"),
        ("1 2", "12"),
        ("1 234 5", "12345"),
        ("", ""),
        ("9" * 2000, "9" * 2000),
    ],
)
def test_not_the_same(answer: str, gold: str) -> None:
    assert not same_number_or_text(answer, [gold])


@pytest.mark.parametrize(
    ("answer", "gold", "same"),
    [
        ("1,658", "1658", True),
        ("1658.0", "1658", True),
        ("100001", "100000", False),
        ("15", "1.5", False),
        ("17.1406", "17.1407", True),
        ("17.2", "17.1", False),
        ("The Netherlands.", "netherlands", True),
        ("1/2", "12", False),
        ("-5", "5", False),
        ("4", "4.00001", True),
        ("50%", "50", True),
        ("inf", "1e999", False),
        ("", "", False),
        ("!", "?", False),
        ("\ud800", "\ud800", True),
        ("", "the", False),
        ("the", "a", False),
        ("inf", "inf", True),
        ("9" * 400, "9" * 400, True),
        ("1" * 10**6, "1", False),
    ],
)
def test_numbers_are_never_compared_as_words(answer: str, gold: str, same: bool) -> None:
    assert same_number_or_words(answer, ("Chad", gold)) is same
    assert same_number_or_words(None, (gold,)) is False


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
        (r"\text{B}", "B"),
        (r"\textbf{(c)}", "C"),
        (r"\mathrm{\text{D}}", "D"),
        (r"The answer is $\boxed{B}$", "B"),
        (r"\boxed{\text{(E)}}", "E"),
        (r"\boxed{5}, so A. is out", None),
        (r"\(B\)", "B"),
        ("The correct answer is (b).", "B"),
        ("C is correct", "C"),
        ("(d) is the best answer.", "D"),
        ("The answer is A. No, C is correct.", "C"),
        ("A is incorrect", None),
        ("The cup A is right of the box", None),
        ("So B is right.", "B"),
        ("D is the right choice", "D"),
        ("Which one is it? B is correct?", None),
        ("B is not correct", None),
        ("The answer is B because it is red", "B"),
        ("The answer is **(B)**", "B"),
        ("I would choose option D", "D"),
        ("The answer must be C", "C"),
        ("B - the red one", "B"),
        ("(B) \u2013 the red one", "B"),
        ("A - b = 3", "A"),
        ("well-known", None),
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
    assert same_choice("b", [r"$\boxed{\text{(B)}}$"])
    assert same_choice(r"\boxed{\text{green}}", ["B"], options)
    assert not same_choice(r"\boxed{A}, though B is correct", ["B"], options)
    assert same_choice("green", ["B"], options)
    assert same_choice("B", ["green."], options)
    assert same_choice("the red bus", ["A red bus"])
    assert not same_choice("red", ["B"], options)
    assert not same_choice("A", ["B"], options)
    assert not same_choice("C", ["Green"], options)
    assert not same_choice("", ["B"], options)
    assert not same_choice("the", [""], options)
