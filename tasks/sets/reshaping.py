"""Rows whose answer, or question, is no column of its own. Pure; each returns a new row.

RowRefused says why a row of the right set makes no question, ValueError what else a row lacks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolwright.reading.answers import hash_number, last_box
from toolwright.reading.task_rows.data import data_in
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.reading.task_rows.rows import MISSING, answers_of, at, first, holds

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


def boxed(row: Row) -> Row:
    """A row with a solution alone, as MATH and Minerva were first published: its box is the
    answer."""
    solution = row.get("solution")
    if holds(first(row, ("answer", "Answer", "final_answer"))) or not isinstance(solution, str):
        return row
    box = last_box(solution, empty=False)
    if box is None:
        raise RowRefused("no_answer", "a solution without a box")
    return {**row, "answer": box}


def olympiad(row: Row) -> Row:
    """Several values in `final_answer` are one answer together, as the set's judge has it: each of
    them is needed."""
    values = answers_of(row.get("final_answer"))
    if len(values) < 2 or holds(row.get("answer")):
        return row
    return {**row, "final_answer": ", ".join(value.strip("$ ") for value in values)}


def gaia(row: Row) -> Row:
    """The answers of the test split are kept secret and stand as "?"; a file beside a question is
    nothing that a text-only policy could see."""
    if holds(first(row, ("file_name", "file_path"))):
        raise RowRefused("attachment", "a question about a file that is not in the row")
    answer = first(row, ("Final answer", "answer"))
    if isinstance(answer, str) and answer.strip() == "?":
        raise RowRefused("no_answer", "an answer that is kept secret")
    return row


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
    """FAIL_TO_PASS and PASS_TO_PASS as one map of the form of `r2e`: all of them pass. SWE-bench
    Pro writes the columns in lower case, and their lists as Python prints them."""
    names = ("FAIL_TO_PASS", "PASS_TO_PASS")
    if not any(name in row for name in (names[0], names[0].lower())):
        return row
    tests: list[str] = []
    for name in names:
        given = first(row, (name, name.lower()))
        listed: Any = _read(given if holds(given) else [], name)
        if hasattr(listed, "tolist"):
            listed = listed.tolist()
        _must(isinstance(listed, list), f"a {name} that is no list of tests")
        tests += map(str, listed)
    expected = json.dumps(dict.fromkeys(sorted(tests), PASSED)) if tests else ""
    return {**row, "FAIL_TO_PASS": expected}


NEMOTRON_INSTANCE = "responses_create_params.metadata.instance_dict"
"""Where NeMo Gym's rows hold the row of another set."""


def nemotron_row(row: Row) -> Row:
    """The row of another set that a row of NeMo Gym holds, with its `dataset_name` and the issue.
    Raises RowRefused."""
    outer = at(row, "responses_create_params.metadata")
    given = at(row, NEMOTRON_INSTANCE)
    instance = _read(given, "instance_dict") if given is not MISSING else {}
    if not isinstance(outer, Mapping) or not isinstance(instance, Mapping):
        raise RowRefused("another_layout", "no responses_create_params.metadata.instance_dict")
    kept = {key: outer[key] for key in ("instance_id", "dataset_name") if holds(outer.get(key))}
    issue = {"problem_statement": outer.get("problem_statement")}
    return {**issue, **instance, **kept}


def nemotron(row: Row) -> Row:
    """As `r2e` and `swe_bench` have it, by what the row holds."""
    inner = nemotron_row(row)
    if holds(inner.get("expected_output_json")):
        inner = r2e(inner)
        expected = inner["expected_output_json"]
    else:
        inner = swe_bench(inner)
        expected = inner.get("FAIL_TO_PASS", "")
    return {**inner, NEMOTRON_INSTANCE: expected}


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _read(text: Any, column: str) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return data_in(text)
    except ValueError as error:
        raise ValueError(f"a {column} that is no JSON ({error})") from error


def _without_marks(issue: Any) -> Any:
    if not isinstance(issue, str):
        return issue
    issue = issue.strip()
    for mark in _ISSUE:
        issue = issue.removeprefix(mark).removesuffix(mark)
    return issue.strip()
