"""The canonical form of mathematics: numbers, units, bases, and what is mathematics at all."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.linear import assert_linear
from toolwright.reading.expressions import bases, expression, in_base_ten, is_expression, quantity

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("$ x + 1 $.", "x+1"),
        (r"\(\pi r\)", r"\pi r"),
        (r"\left( 3,\, 4 \right)", "(3,4)"),
        ("1.5e-3", r"1.5\cdot 10^{-3}"),
        (r"2^{e2}", r"2^{e2}"),
        ("0.333...", "0.333..."),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\ 2\end{pmatrix}"),
        (r"\sin 30^\circ", r"\sin 30^\circ"),
        ("e\u0301", "\u00e9"),
        ("", ""),
    ],
)
def test_one_spelling(text: str, canonical: str) -> None:
    assert expression(text).replace(" ", "") == canonical.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("1,234.50", Fraction(2469, 2), ""),
        ("-.5", Fraction(-1, 2), ""),
        (r"-\frac{1}{3}", Fraction(-1, 3), ""),
        ("6.02e23", Fraction(602 * 10**21), ""),
        ("5 inches", 5, "in"),
        (r"5\,\mathrm{m/s}", 5, "m/s"),
        ("9 cm^2", 9, "cm^2"),
        (r"3\text{ pieces of cake}", 3, "pieces of cake"),
        ("12%", 12, ""),
    ],
)
def test_a_number_and_its_unit(text: str, value: Fraction, unit: str) -> None:
    found = quantity(text)
    assert found is not None
    assert (found.value, found.unit) == (value, unit)


@pytest.mark.parametrize(
    "text", ["", "x", "5x", "1..2", "1e", "1e9999", "1/0", "5 apples", "3.4.5", "\u0663", "1 2"]
)
def test_what_is_not_a_number(text: str) -> None:
    assert quantity(text) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1001_2", (("1001", 2),)),
        ("001001_{2}", (("1001", 2),)),
        ("2F_{16} + 7_8", (("2f", 16), ("7", 8))),
        (r"1001_{\text{two}}", (("1001", 2),)),
        ("1001 base 2", (("1001", 2),)),
        ("1001 in base two", (("1001", 2),)),
        ("42_{10}", ()),
        ("19_2", ()),  # 9 is not a digit of base 2
        ("x_2", ()),
        ("a_{12}", ()),
        (r"\log_2 8", ()),
        ("x^2_3", ()),
        ("10C_3", ()),
    ],
)
def test_number_bases(text: str, found: tuple[tuple[str, int], ...]) -> None:
    assert bases(expression(text)) == found


def test_base_ten() -> None:
    assert in_base_ten("1001_2+x_2") == "9+x_2"


@pytest.mark.parametrize(
    ("text", "mathematical"),
    [
        ("12", True), ("x+1", True), ("(1,2)", True), (r"\frac{1}{2}", True), ("5 cm", True),
        (r"\pi", True), ("a-b", True), ("Paris", False), (r"\text{Paris}", False), ("B", False),
        ("7 dwarfs and 1 queen", False), ("", False), ("May 4, 1990", False),
    ],
)  # fmt: skip
def test_mathematics_and_words(text: str, mathematical: bool) -> None:
    assert is_expression(text) is mathematical


@given(st.text(alphabet="0123456789.,eE+-*/^_{}\\ $xcirbasetwo%\u00b0\u00b2\u2082\u0301"))
def test_whatever_is_written_is_read(text: str) -> None:
    form = expression(text)
    assert isinstance(is_expression(text), bool)
    assert all(2 <= base <= 36 and base != 10 for _, base in bases(form))
    assert isinstance(in_base_ten(form), str)
    number = quantity(text)
    assert number is None or number.number in form


def test_hostile_texts_take_linear_time() -> None:
    for read in (expression, quantity, bases, is_expression):
        assert_linear(read)
