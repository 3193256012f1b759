"""Schemas of tools that a model plays: reading, checking, linting."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsvc.schemas.functions import NotTools, function_tools, json_in
from toolsvc.schemas.lint import MOST_TOOLS, lint, schema_faults
from toolsvc.schemas.validation import Violation, closed, violations
from toolsvc.sources.simulated.form import FORM, completed
from toolsvc.sources.simulated.maker import ROLE, checked

FILM: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "film",
        "description": "Looks a film up.",
        "parameters": {
            "type": "object",
            "properties": {"title": {"type": "string", "minLength": 1}},
            "required": ["title"],
        },
    },
    "returns": {
        "type": "object",
        "properties": {"year": {"type": "integer"}, "tags": {"items": {"type": "string"}}},
        "required": ["year"],
    },
}


def film(**changes: Any) -> dict[str, Any]:
    function = {**FILM["function"], **changes}
    return {**FILM, "function": function, "returns": function.pop("returns", FILM["returns"])}


def parameters(**schema: Any) -> dict[str, Any]:
    return film(parameters={"type": "object", "properties": {"x": schema}})


def test_openai_s_form_and_the_bare_one_are_read() -> None:
    (tool,) = function_tools([FILM])
    (bare,) = function_tools({"tools": [{**FILM["function"], "returns": FILM["returns"]}]})
    assert tool == bare
    assert tool.name == "film"


def test_objects_are_closed_unless_they_say_otherwise() -> None:
    (tool,) = function_tools([FILM])
    assert [v.rule for v in violations(tool.parameters, {"title": "a", "tite": "b"})] == [
        "additionalProperties"
    ]
    free = {"properties": {}, "additionalProperties": True}
    assert closed(free) == free
    (none,) = function_tools([film(parameters={})])
    assert violations(none.parameters, {"x": 1})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "a list of tools"),
        ("film", "a list of tools"),
        ([1], "tool 0 is not an object"),
        ([film(name="a b")], "tool 0: name"),
        ([FILM, FILM], "two tools are called 'film'"),
        ([film(parameters={"type": "nothing"})], r"tool 0, film: \$.type"),
        ([film(parameters={"type": "array"})], "parameters must be an object"),
        ([parameters(pattern="(")], "tool 0, film"),
        ([parameters(pattern="(?=a)b")], "linear time"),
        ([parameters(pattern="(a{1,1000}){1,1000}")], "linear time"),
        ([film(returns={"$ref": "http://127.0.0.1:1/x"})], "not present"),
    ],
)
def test_what_is_no_tool_is_named(data: Any, message: str) -> None:
    with pytest.raises(NotTools, match=message):
        function_tools(data)


def test_violations_are_told_where_they_are() -> None:
    (tool,) = function_tools([FILM])
    assert tool.returns is not None
    assert violations(tool.returns, {"tags": ["a", 1], "more": 0}) == [
        Violation(path="$.more", rule="additionalProperties", expected="one of year, tags"),
        Violation(path="$.tags[1]", rule="type", expected="string"),
        Violation(path="$.year", rule="required", expected="a value"),
    ]
    assert violations(tool.returns, {"year": 1984.0}) == []


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1] ", [1]),
        ('Here:\n```json\n{"a": [1, {}]}\n```', {"a": [1, {}]}),
        ('<think>{"no": 1}</think>{"a": 1}', {"a": 1}),
        ('"text"', "text"),
    ],
)
def test_json_is_found_in_an_answer(answer: str, value: Any) -> None:
    assert json_in(answer) == value


@pytest.mark.parametrize("answer", ["", "none", "{", '{"a": NaN}', "[" * 100_000])
def test_an_answer_without_json_is_an_error(answer: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        json_in(answer)


@pytest.mark.parametrize(
    ("tools", "fault"),
    [
        ([film(name=f"f{n}") for n in range(9)], "9 tools"),
        ([film(name="python")], "another tool has this name"),
        ([film(description=" ")], "no description"),
        ([film(description="x" * 9000)], "characters"),
        ([parameters(format="date")], "uses 'format'"),
        ([parameters(type="string", pattern="a" * 201)], "more than 200 characters"),
        ([parameters(items={"allOf": [{}, {}]})], "parameters.x.items uses 'allOf'"),
        ([film(parameters={"properties": {str(n): {} for n in range(200)}})], "200 schemas"),
        ([film(parameters={"properties": {"a": {}}, "required": ["b"]})], "requires 'b'"),
        ([parameters(type="object", properties={}, required=["b"])], "parameters.x requires 'b'"),
        ([parameters(type="integer", enum=["1", "2"])], "no value of its enum is of its type"),
    ],
)
def test_a_tool_set_that_no_policy_should_have_is_named(tools: Any, fault: str) -> None:
    assert any(fault in one for one in lint(function_tools(tools), {"python"}))


def test_a_good_tool_set_passes() -> None:
    assert lint(function_tools([FILM, film(name="other")]), {"python"}) == []
    open_object = {"type": "object", "additionalProperties": {"type": "string"}, "required": ["b"]}
    for good in (
        parameters(type=["integer", "null"], enum=[None]),
        parameters(type="number", enum=["many", 1]),
        parameters(**open_object),
        parameters(**open_object, properties={"a": {}}),
    ):
        assert lint(function_tools([good]), ()) == []


def test_a_schema_that_never_ends_is_too_deep() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(20):
        schema = {"type": "array", "items": schema}
    assert any("too deeply" in one for one in lint(function_tools([film(returns=schema)]), ()))


def plain(**changes: Any) -> dict[str, Any]:
    """A tool as a model writes it that is held to the form."""
    title = {"type": "string", "description": "Of the film.", "enum": ["Lost", "Heat"]}
    years = {"type": "array", "description": "All.", "items": {"type": "integer"}}
    function = {
        "name": "film",
        "description": "Looks a film up.",
        "parameters": {"type": "object", "properties": {"title": title}},
    }
    returns = {"type": "object", "properties": {"years": years}}
    return {"type": "function", "function": {**function, **changes}, "returns": returns}


def inside(member: dict[str, Any], *, names: int = 1) -> dict[str, Any]:
    members = {f"m{n}": {"description": "It.", **member} for n in range(names)}
    return {"type": "object", "properties": members}


def test_what_fits_the_form_passes() -> None:
    tools = [plain(name=f"film_{n}") for n in range(MOST_TOOLS)]
    assert violations(FORM, tools) == []
    assert lint(function_tools(tools), ()) == []


def test_what_fits_the_form_requires_every_member() -> None:
    (tool,) = checked(json.dumps([plain()]), (), Counter(), constrained=True)
    assert (tool.parameters["required"], tool.returns["required"]) == (["title"], ["years"])
    said = plain(parameters={"type": "object", "properties": {"a": {}}, "required": []})
    assert completed([said])[0]["function"]["parameters"]["required"] == []
    (tool,) = checked(json.dumps([plain()]), (), Counter())
    assert "required" not in tool.parameters


JUNK = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
WRITTEN_SCHEMAS = JUNK | st.fixed_dictionaries(
    {}, optional={"properties": JUNK | st.dictionaries(st.text(max_size=3), JUNK), "required": JUNK}
)
WRITTEN_TOOLS = JUNK | st.fixed_dictionaries(
    {},
    optional={
        "function": JUNK | st.fixed_dictionaries({}, optional={"parameters": WRITTEN_SCHEMAS}),
        "returns": WRITTEN_SCHEMAS,
    },
)


@given(JUNK | st.lists(WRITTEN_TOOLS, max_size=3))
def test_completing_takes_whatever_an_endpoint_wrote_and_adds_nothing_but_required(
    written: Any,
) -> None:
    before = json.dumps(written)
    found = completed(written)
    assert json.dumps(written) == before
    for was, now in zip(schemas_of(written), schemas_of(found), strict=True):
        added = dict(now) if isinstance(now, dict) else now
        if isinstance(was, dict) and isinstance(was.get("properties"), dict):
            assert now["required"] == was.get("required", list(was["properties"]))
            if "required" not in was:
                del added["required"]
        assert added == was


def schemas_of(tools: Any) -> list[Any]:
    """And what stands in their places; where a tool has no function, all of it."""
    found: list[Any] = []
    for tool in tools if isinstance(tools, list) else []:
        function = tool.get("function") if isinstance(tool, dict) else None
        whole = not isinstance(function, dict)
        found += [tool] if whole else [function.get("parameters"), tool.get("returns")]
    return found


@pytest.mark.parametrize(
    "tools",
    [
        [], [plain(name=f"film_{n}") for n in range(MOST_TOOLS + 1)], [plain(name="1st")],
        [plain(name="")], [plain(description="")], [plain(description="x" * 301)],
        [plain(parameters={"type": "string"})],
        [plain(parameters={"type": "object", "properties": {}, "required": []})],
        [{**plain(), "type": "tool"}], [{**plain(), "answer": "Paris"}],
        [plain(parameters=inside({"type": "object", "properties": {}}))],
        [plain(parameters=inside({"type": "array", "items": {"type": "object"}}))],
        [plain(parameters=inside({"type": "string", "pattern": "a"}))],
        [plain(parameters=inside({"type": "boolean", "enum": ["yes"]}))],
        [plain(parameters=inside({"type": "array"}))],
        [plain(parameters=inside({"type": "array", "items": {"type": "string"}, "enum": ["a"]}))],
        [plain(parameters=inside({"type": "string"}, names=21))], {"tools": [plain()]},
    ],
)  # fmt: skip
def test_what_does_not_fit_the_form(tools: Any) -> None:
    assert violations(FORM, tools)


@pytest.mark.parametrize(
    "schema", [{"required": [{}]}, {"required": 5}, {"type": "x", "enum": [1]}, {"enum": 5}]
)
def test_what_is_no_schema_is_named_by_whoever_checks_it(schema: dict[str, Any]) -> None:
    """`schema_faults` is asked of what a policy wrote before it is known to be a schema."""
    given = {"type": "object", "properties": {"a": schema}}
    assert list(schema_faults("arguments", given, patterns=False)) == []
    with pytest.raises(NotTools):
        function_tools([film(parameters=given)])


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps([FILM]),
        f"<think>a film</think>Here are the tools:\n```json\n{json.dumps([FILM], indent=2)}\n```",
        json.dumps({"tools": [FILM]}),
        json.dumps(FILM),
        f"```\n{json.dumps({**FILM['function'], 'returns': FILM['returns']})}\n```",
    ],
)
def test_a_tool_set_is_read_in_the_forms_that_models_write(answer: str) -> None:
    (tool,) = checked(answer, (), Counter())
    assert (tool.name, tool.returns is not None) == ("film", True)


def test_the_example_in_toolmakers_prompt_is_a_tool_set_that_passes() -> None:
    (tool,) = checked(ROLE[ROLE.rindex("An example") :], (), Counter())
    assert tool.name == "film_director"
