"""Schemas as models write them: what is made of them, and what stays refused."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest

from toolsvc.schemas.functions import function_tools
from toolsvc.schemas.lint import lint
from toolsvc.schemas.ordinary import ordinary, ordinary_tools
from toolsvc.schemas.validation import violations

pytestmark = pytest.mark.quick

TEXT, NULL = {"type": "string"}, {"type": "null"}


def tool(**member: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"x": member}}
    return {
        "type": "function",
        "function": {"name": "film", "description": "Looks up.", "parameters": parameters},
    }


@pytest.mark.parametrize(
    ("written", "made", "changes"),
    [
        (TEXT, TEXT, {}),
        ({**TEXT, "format": "date", "description": "When."},
         {**TEXT, "description": "When. (format: date)"}, {"format": 1}),
        ({**TEXT, "format": "uri"}, {**TEXT, "description": "(format: uri)"}, {"format": 1}),
        ({**TEXT, "examples": ["a"], "$comment": "b"}, TEXT, {"examples": 1, "$comment": 1}),
        ({"anyOf": [TEXT, NULL]}, {"type": ["string", "null"]}, {"anyOf": 1}),
        ({"anyOf": [{**TEXT, "enum": ["a"]}, NULL], "default": None, "description": "D."},
         {"type": ["string", "null"], "enum": ["a", None], "default": None, "description": "D."},
         {"anyOf": 1}),
        ({"oneOf": [{"const": 1}, NULL]}, {"enum": [1, None]}, {"oneOf": 1}),
        ({"allOf": [TEXT]}, TEXT, {"allOf": 1}),
        ({"anyOf": [TEXT, {"type": "integer"}, NULL]}, {"type": ["string", "integer", "null"]},
         {"anyOf": 1}),
        ({**TEXT, "nullable": True}, {"type": ["string", "null"]}, {"nullable": 1}),
        ({**TEXT, "nullable": False}, TEXT, {"nullable": 1}),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True},
         {"type": "integer", "exclusiveMinimum": 0}, {"exclusiveMinimum": 1}),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.5},
         {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.5}, {}),
        (
            {"type": "array", "items": {"anyOf": [{**TEXT, "format": "date"}, NULL]}},
            {
                "type": "array",
                "items": {"type": ["string", "null"], "description": "(format: date)"},
            },
            {"anyOf": 1, "format": 1},
        ),
        ({"type": "object", "properties": {"a": {**TEXT, "required": True}, "b": TEXT}},
         {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["a"]},
         {"required": 1}),
        ({"type": "object", "properties": {"format": TEXT, "examples": TEXT}},
         {"type": "object", "properties": {"format": TEXT, "examples": TEXT}}, {}),
    ],
)  # fmt: skip
def test_an_ordinary_schema_is_made_to_pass(
    written: dict[str, Any], made: dict[str, Any], changes: dict[str, int]
) -> None:
    found, counted = ordinary_tools([tool(**written)])
    assert found[0]["function"]["parameters"]["properties"]["x"] == made
    assert counted == changes
    assert lint(function_tools(found), ()) == []


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ({"anyOf": [{"type": "object", "properties": {}}, TEXT]}, "uses 'anyOf'"),
        ({"oneOf": [TEXT, {"type": "integer"}]}, "uses 'oneOf'"),
        ({"allOf": [TEXT, {"minLength": 2}]}, "uses 'allOf'"),
        ({"minLength": 2, "anyOf": [{**TEXT, "minLength": 3}, NULL]}, "uses 'anyOf'"),
        ({"not": TEXT}, "uses 'not'"),
        ({"type": "array", "uniqueItems": True}, "uses 'uniqueItems'"),
    ],
)
def test_what_has_no_ordinary_form_is_refused(written: dict[str, Any], fault: str) -> None:
    found, counted = ordinary_tools([tool(**written)])
    assert any(fault in one for one in lint(function_tools(found), ()))
    assert not counted


def test_values_that_fitted_before_fit_after() -> None:
    written = {"anyOf": [{"type": "integer", "minimum": 3}, NULL]}
    made = ordinary(written, Counter())
    for value in (3, 4, None, 2, "a"):
        assert bool(violations(made, value)) == bool(violations(written, value)), value


@pytest.mark.parametrize("data", [None, 7, "x", {}, {"tools": 3}, [1, None], [{"function": 2}]])
def test_what_is_not_tools_stays_as_it_is(data: Any) -> None:
    assert ordinary_tools(data) == (data, Counter())


def test_deep_and_wide_schemas_take_little_time() -> None:
    deep: Any = TEXT
    for _ in range(400):
        deep = {"anyOf": [deep, NULL]}
    wide = {
        "type": "object",
        "properties": {str(n): {"anyOf": [TEXT, NULL]} for n in range(20_000)},
    }
    began = time.process_time()
    ordinary_tools(json.loads(json.dumps([tool(**deep), tool(**wide)])))
    assert time.process_time() - began < 2.0
