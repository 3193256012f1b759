"""Matching against a schema has a bound, whoever wrote the schema and the value: counted in looks,
not in seconds. Each of these took minutes, or for ever."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolsvc.plugin.actions import InvalidAction
from toolsvc.schemas.cost import Cost, Unmatchable
from toolsvc.schemas.schema_tool import SchemaTool
from toolsvc.schemas.validation import MOST_LOOKS, BadSchema, Matcher, UnboundedSchema
from toolsvc.tools.create.request import NotMade, schema_of

BOTH_GO_DEEPER = {
    "$defs": {
        "tree": {
            "type": "array",
            "items": {"anyOf": [{"$ref": "#/$defs/tree"}, {"$ref": "#/$defs/tree"}]},
        }
    },
    "$ref": "#/$defs/tree",
}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "schema",
    [
        {"s": {"type": "string", "pattern": "^(a+)+$"}},
        {"s": {"type": "array", "items": {"pattern": "a"}}},
        {"s": {"patternProperties": {"^(a+)+$": {}}}},
        {"s": {"format": "regex"}},
        {"s": {"uniqueItems": True}},
        {"s": {"$ref": "#"}},
        {"s": {"allOf": [{}, {}]}},
        {"s": {"anyOf": [{}, {}]}},
        {"s": {"enum": ["x" * 9000]}},
        {str(n): {} for n in range(300)},
        {"type": "object", "properties": {}, "propertyNames": {"pattern": "^(a+)+$"}},
    ],
)
def test_a_policy_s_schema_has_nothing_that_takes_more_than_one_look(schema: Any) -> None:
    with pytest.raises(NotMade):
        schema_of(schema)


@pytest.mark.parametrize("value", ["[" * 26 + "]" * 26, r'"\ud83d"', "9" * 400, "NaN"])
def test_a_schema_that_could_not_be_sent_is_none(value: str) -> None:
    """It would be found when the tool was made already, and its maker would be told of a fault of
    the service."""
    with pytest.raises(NotMade):
        schema_of(f'{{"a": {{"default": {value}}}}}')
    with pytest.raises(BadSchema):
        Matcher({"items": {"default": {"a": json.loads(value)}}})


def test_patterns_of_others_are_matched_in_linear_time() -> None:
    class Theirs(SchemaTool):
        name = "theirs"
        schema: Mapping[str, Any] = {
            "properties": {"s": {"pattern": "^(a+)+$"}},
            "patternProperties": {"^(b+)+$": {}},
        }

    tool = Theirs()
    tool.check_arguments({"s": "a" * 100_000})
    with pytest.raises(InvalidAction, match=r"\$\.s: pattern"):
        tool.check_arguments({"s": "a" * 100_000 + "!", "b" * 100_000 + "!": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": r"(a)\1"},
        {"pattern": "(?=a)b"},
        {"pattern": "(a{1,1000}){1,1000}"},
        {"$ref": "http://127.0.0.1:1/x"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$dynamicAnchor": "x", "items": {"$dynamicRef": "#x"}},
        {"items": {"items": {"items": {"$ref": "#/items/items/items"}}}},
    ],
)
def test_what_has_no_bound_is_told_apart_from_what_is_no_schema(schema: Any) -> None:
    with pytest.raises(UnboundedSchema):
        Matcher(schema).violations([[1]])


def test_a_schema_that_is_none_is_named() -> None:
    with pytest.raises(BadSchema, match=r"\$\.type: 'nothing'|\$\.type: \"nothing\"") as caught:
        Matcher({"type": "nothing"})
    assert not isinstance(caught.value, UnboundedSchema)


def test_branches_that_all_go_deeper_cost_what_they_would_cost() -> None:
    matcher = Matcher(BOTH_GO_DEEPER)
    looks = [matcher.looks(nested(depth)) for depth in (4, 5, 6)]
    assert looks[1] > 1.8 * looks[0]
    assert looks[2] > 1.8 * looks[1]
    assert matcher.looks(nested(40)) == MOST_LOOKS + 1
    assert [one.rule for one in matcher.violations(nested(40))] == ["size"]
    # Shallow values of the same schema are matched as ever.
    assert matcher.violations([[], [[]]]) == []


def test_branches_of_which_one_goes_deeper_cost_no_more_than_the_value_is_large() -> None:
    leaf_or_tree = {"anyOf": [{"type": "integer"}, {"items": {"$ref": "#"}}]}
    lists_and_objects = {
        "anyOf": [{"items": {"$ref": "#"}}, {"additionalProperties": {"$ref": "#"}}]
    }
    for schema in (leaf_or_tree, lists_and_objects):
        matcher = Matcher(schema)
        assert matcher.looks(nested(28)) < 6 * 28
        assert matcher.violations(nested(28)) == []


def test_the_cost_of_a_large_value_is_found_without_a_walk_over_it() -> None:
    assert Matcher({}).looks([1] * 100_000 + [[]] * 200_000) == MOST_LOOKS + 1


def test_many_faults_are_not_all_told() -> None:
    matcher = Matcher({"items": {"type": "string"}})
    assert len(matcher.violations([1] * 500)) == 20
    assert [one.rule for one in matcher.violations([1] * 50_000)] == ["schema"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {1}])
def test_what_is_no_json_fits_nothing(value: Any) -> None:
    assert Matcher({"type": ["integer", "string", "object"]}).violations(value)


schemas = st.recursive(
    st.just({}) | st.just({"items": {"$ref": "#"}}) | st.just({"properties": {"a": {"$ref": "#"}}}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "items": inner,
            "additionalProperties": inner,
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        },
    ),
    max_leaves=6,
)
values = st.recursive(
    st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=8,
)


def looked(root: Mapping[str, Any], schema: Any, value: Any) -> int:
    """How often schemas are applied by a validator that leaves nothing out."""
    total = 1
    if "$ref" in schema:
        total += looked(root, root, value)
    for keyword in ("allOf", "anyOf"):
        total += sum(looked(root, inner, value) for inner in schema.get(keyword, ()))
    if "not" in schema:
        total += looked(root, schema["not"], value)
    if isinstance(value, list) and "items" in schema:
        total += sum(looked(root, schema["items"], inner) for inner in value)
    if isinstance(value, dict):
        known = schema.get("properties", {})
        rest = schema.get("additionalProperties")
        for name, inner in value.items():
            if name in known:
                total += looked(root, known[name], inner)
            elif rest is not None:
                total += looked(root, rest, inner)
    return total


@settings(max_examples=100, deadline=None)
@given(schemas, values)
def test_no_value_costs_more_looks_than_are_counted(schema: Any, value: Any) -> None:
    try:
        cost = Cost(schema)
        counted = cost.of(value, 10**9)
    except Unmatchable:
        return
    assert looked(schema, schema, value) <= counted
