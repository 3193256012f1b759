"""What comes in and what does not: nothing that a stranger sends is run, or brings all down."""

from __future__ import annotations

import json
import keyword
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.admission import check_work
from memory.errors import BadWork
from memory.graph.guards import refusal
from memory.types import GroupWork, Stats
from tests.support.tool_memory import calls, registering, rollout, tool

GOOD = tool("area", "area of a circle", schema={"type": "object"}, inputs=('{"r": 2}',))
DEEP = json.loads('{"a":' * 60 + "1" + "}" * 60)


def test_a_tool_as_it_should_be_comes_in() -> None:
    assert refusal(GOOD, {"python", "search"}) == ""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": "python"}, "every session has"),
        ({"name": ""}, "not a function name"),
        ({"name": "class"}, "not a keyword"),
        ({"name": "a" * 65}, "at most 64"),
        ({"name": "größe"}, "not a function name"),
        ({"name": "area\n"}, "not a function name"),
        ({"description": "x" * (1 << 20)}, "description has 1048576 characters, at most 4096"),
        ({"description": " \n"}, "nothing could find it"),
        ({"arguments": "\0"}, "characters that UTF-8 cannot encode"),
        ({"code": "def area(x):\n    return '\ud800'"}, "characters that UTF-8 cannot encode"),
        ({"code": "def area(x):\0 pass"}, "characters that UTF-8 cannot encode"),
        ({"code": "#" * 20_000}, "code has 20000 characters, at most 16384"),
        ({"code": "def area(x) return x"}, "does not parse"),
        ({"code": "if True:\n    def area(x): pass"}, "does not define a function area"),
        ({"code": "class area: pass"}, "does not define a function area"),
        ({"code": "async def area(x): pass"}, "async"),
        ({"schema": {"a": {1, 2}}}, "schema is not JSON"),
        ({"schema": {"a": "\udfff"}}, "schema is not JSON"),
        ({"schema": {"a": "x" * 17_000}}, "schema has"),
        ({"schema": DEEP}, "schema is not JSON"),
        ({"inputs": ("[1]",)}, "not a JSON object"),
        ({"inputs": ('{"r": NaN}',)}, "not a JSON object"),
        ({"inputs": ('{"r": "\\ud800"}',)}, "not a JSON object"),
        ({"inputs": ("{" * 10_000,)}, "not a JSON object"),
        ({"inputs": ('{"a":' * 2000 + "1" + "}" * 2000,)}, "not a JSON object"),
        ({"inputs": ("{}" + " " * 20_000,)}, "at most 16384"),
        ({"inputs": ("{}",) * 9}, "at most 8"),
    ],
)
def test_what_is_no_tool_is_refused_with_a_sentence(change: dict[str, object], told: str) -> None:
    said = refusal(replace(GOOD, **change), {"python"})  # type: ignore[arg-type]
    assert told in said and len(said) < 400


@pytest.mark.parametrize(
    "body",
    [
        "-" * 16_000 + "1",
        "not " * 4000 + "1",
        "a" + ".b" * 8000,
        "(" * 200,
        "lambda:" * 2000 + "1",
        "1" + "+1" * 8000,
        "[x for x in " * 500,
        "'\\d' " * 2000,
        "f'" + "{a:" * 60,
        "9" * 16_000,
    ],
)
def test_hostile_code_is_parsed_or_refused_and_no_more(body: str) -> None:
    said = refusal(replace(GOOD, code=f"{body}\ndef area(x): pass"), ())
    assert said == "" or "does not parse" in said


def test_nothing_is_run(tmp_path) -> None:  # type: ignore[no-untyped-def]
    touched = tmp_path / "touched"
    code = f"open({str(touched)!r}, 'w')\ndef area(x=open({str(touched)!r}, 'w')): pass"
    assert refusal(replace(GOOD, code=code), ()) == ""
    assert not touched.exists()


@given(st.text(max_size=70), st.text(max_size=40), st.text(max_size=60), st.text(max_size=20))
def test_whatever_comes_the_answer_is_a_sentence_or_none(
    name: str, description: str, code: str, inputs: str
) -> None:
    drawn = replace(GOOD, name=name, description=description, code=code, inputs=(inputs,))
    if not refusal(drawn, ()):
        assert name.isidentifier() and not keyword.iskeyword(name)


ONE = rollout("t0")


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (GroupWork(group="", step=1), "not an id"),
        (GroupWork(group="g" * 513, step=1), "1 to 512 characters"),
        (GroupWork(group="\ud800", step=1), "not an id"),
        (GroupWork(group="g", step=-1), "below 0"),
        (GroupWork(group="g", step=1 << 60), "above"),
        (GroupWork(group="g", step=1, rollouts=(ONE, ONE)), "twice"),
        (GroupWork(group="g", step=1, rollouts=(ONE,), registers="t1"), "not one of its rollouts"),
        (GroupWork(group="g", step=1, delta=float("nan")), "delta is nan"),
        (GroupWork(group="g", step=1, counts={"created": -1}), "below 0"),
        (registering("g", used={"a": calls(1, 2)}), "2 of 1 calls worked"),
        (registering("g", used={"a": Stats(calls=1, seconds=float("inf"))}), "no time"),
        (registering("g", edges=(("a", "b", -1),)), "below 0"),
        (registering("g", edges=(("a", "b", 1),) * 16_385), "16385 edges, at most 16384"),
        (registering("g", *[tool("a")] * 1025), "1025 candidates, at most 1024"),
    ],
)
def test_a_work_that_says_nothing_sensible_is_refused_whole(work: GroupWork, told: str) -> None:
    with pytest.raises(BadWork, match=told):
        check_work(work)
