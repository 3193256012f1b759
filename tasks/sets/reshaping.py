"""Rows whose answer, or question, is no column of its own. Pure; each returns a new row.

ValueError says what a row lacks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolwright.reading.answers import hash_number

PASSED = "PASSED"
_ISSUE = ("[ISSUE]", "[/ISSUE]")

Row = Mapping[str, Any]


def gsm8k(row: Row) -> Row:
    """The number behind #### is the answer; the solution before it is left out."""
    solution = row.get("answer")
    if not isinstance(solution, str):
        return row
    number = hash_number(solution)
    if number is None:
        raise ValueError("an answer without a number behind ####")
    return {**row, "answer": number}


def r2e(row: Row) -> Row:
    """The issue without its marks; the answer is the map from each test to what shall become of it,
    as JSON with sorted keys."""
    return {
        **row,
        "problem_statement": _without_marks(row.get("problem_statement")),
        **_expected(row),
    }


def _expected(row: Row) -> Row:
    given = row.get("expected_output_json")
    if given is None:
        return {}
    expected = _read(given, "expected_output_json")
    _must(isinstance(expected, dict), "an expected_output_json that is no object of tests")
    return {"expected_output_json": json.dumps(expected, sort_keys=True) if expected else ""}


def swe_bench(row: Row) -> Row:
    """FAIL_TO_PASS and PASS_TO_PASS as one map of the form of `r2e`: all of them pass."""
    if "FAIL_TO_PASS" not in row:
        return row
    tests: list[str] = []
    for name in ("FAIL_TO_PASS", "PASS_TO_PASS"):
        listed: Any = _read(row.get(name), name)
        if hasattr(listed, "tolist"):
            listed = listed.tolist()
        _must(isinstance(listed, list), f"a {name} that is no list of tests")
        tests += map(str, listed)
    expected = json.dumps(dict.fromkeys(sorted(tests), PASSED)) if tests else ""
    return {**row, "FAIL_TO_PASS": expected}


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _read(text: Any, column: str) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a {column} that is no JSON") from error


def _without_marks(issue: Any) -> Any:
    if not isinstance(issue, str):
        return issue
    issue = issue.strip()
    for mark in _ISSUE:
        issue = issue.removeprefix(mark).removesuffix(mark)
    return issue.strip()
