"""Tables of rows, beside the golden examples."""

from __future__ import annotations

import random
import time
from decimal import Decimal
from typing import Any

import pytest

from tasks.judging.tables import asks_for_order, same_rows


@pytest.mark.parametrize(
    ("pred", "gold", "ordered", "same"),
    [
        ([["x", 1], ["y", 2]], [[1, "x"], [2, "y"]], False, True),  # columns the other way round
        ([["x", 1], ["y", 2]], [[1, "x"], [2, "y"]], True, True),
        ([["x", 1], [2, "y"]], [[1, "x"], [2, "y"]], False, False),  # another order in each row
        ([[1, 2], [2, 1]], [[1, 1], [2, 2]], False, False),  # column by column they are the same
        ([[1, 1]], [[1]], False, False),
        ([[1]], [[1], [1]], False, False),
        ([[1, 2], [3]], [[1, 2], [3, 4]], False, False),
        ([[], []], [[], []], False, True),
        ([[None, "a"]], [["a", None]], False, True),
        ([[1.0]], [[1]], False, True),
        ([[Decimal("2.50")]], [[2.5]], False, True),
        ([[0.1 + 0.2]], [[0.3]], False, True),
        ([[float("nan")]], [[float("nan")]], False, True),
        ([[0.12345678905]], [[0.12345678904999999]], False, True),
        ([[2.5], [0.49999999995]], [[0.49999999994999999], [2.5]], False, True),
        ([[1e20 / 3]], [[1e20 / 3 * (1 + 1e-12)]], True, True),
        ([[0.1 + 0.2 - 0.3]], [[0]], False, True),
        ([[3.0000000000000004, "x"]], [["x", 3]], False, True),
        ([[1e-20]], [[1e-21]], False, False),
        ([[0.1234567]], [[0.1234568]], False, False),
        ([[4_000_000_000]], [[4_000_000_001]], False, False),
        ([[4_000_000_000], [4_000_000_000.5]], [[4_000_000_000.5], [4_000_000_001]], False, False),
        ([[10**400]], [[10**400 + 1]], False, False),
        ([["cafe\u0301"]], [["caf\u00e9"]], False, True),
        ([["1"]], [[1]], False, False),
        ([[20_000_000_000.0]], [[20_000_000_001.0]], False, False),
        ([[20_000_000_001.0]], [[20_000_000_001]], False, True),
        ([[Decimal("20000000001")]], [[20_000_000_001]], False, True),
        ([[float("inf")]], [[float("-inf")]], False, False),
        ([[b"\0"]], [[b"\0"]], False, True),
        ([[[1, [2]], {"a": 1}]], [[{"a": 1}, [1, [2]]]], False, True),
    ],
)
def test_rows(pred: Any, gold: Any, ordered: bool, same: bool) -> None:
    assert same_rows(pred, gold, ordered=ordered) is same


def test_any_order_of_rows_and_columns_is_found() -> None:
    drawn = random.Random(3)
    for _ in range(50):
        width, height = drawn.randint(1, 6), drawn.randint(1, 12)
        gold = [[drawn.randint(0, 2) for _ in range(width)] for _ in range(height)]
        order = drawn.sample(range(width), width)
        pred = [[row[column] for column in order] for row in drawn.sample(gold, height)]
        assert same_rows(pred, gold, ordered=False)
        spoilt = [*pred[:-1], [value + 7 for value in pred[-1]]]
        assert not same_rows(spoilt, gold, ordered=False)


def test_many_columns_that_look_alike_do_not_take_for_ever() -> None:
    started = time.process_time()
    twins = [[row] * 60 for row in range(20)]
    assert same_rows(twins, twins, ordered=False)
    latin = [[(row + column) % 24 for column in range(24)] for row in range(24)]
    turned = [[(row * 5 + column * 7) % 24 for column in range(24)] for row in range(24)]
    assert same_rows(turned, latin, ordered=False), "rows and columns stand in another order"
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    ("sql", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order\n  by a limit 3", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 3)", False),
        ("SELECT 'ORDER BY' FROM t", False),
        ("SELECT a FROM t -- order by a\n", False),
        ("SELECT a /* order by a */ FROM t", False),
        ('SELECT "order by" FROM t', False),
        ("SELECT [order by] FROM t", False),
        ("SELECT [order by], [x -- ( '] FROM t ORDER BY 1", True),
        ("SELECT [never closed order by", False),
        ("SELECT `order by` FROM [order by] ORDER BY 1", True),
        ("SELECT row_number() OVER (ORDER BY a) FROM t", False),
        ("SELECT a /* don't */ FROM t ORDER BY a", True),
        ("SELECT a /* -- */ FROM t ORDER BY a", True),
        ('SELECT a /* " ( ` */ FROM t ORDER BY a', True),
        ("SELECT a /* one\n'two */ FROM t", False),
        ("SELECT a -- /* \nFROM t ORDER BY a", True),
        ("SELECT '/*' FROM t ORDER BY a", True),
        ("SELECT a /* never closed ORDER BY a", False),
        ("/*" * 100_000 + " order by", False),
        ("SELECT border, bystander FROM t", False),
        ("", False),
        ("'" * 100_001 + " order by", False),
    ],
)
def test_only_an_order_of_the_result_counts(sql: str, ordered: bool) -> None:
    assert asks_for_order(sql) is ordered
