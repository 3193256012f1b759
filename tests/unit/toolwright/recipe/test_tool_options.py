"""[tools.NAME.options]: what `toolsvc serve --set` reads of them, and what the learner compares."""

from __future__ import annotations

from typing import Any

import pytest

from toolsvc.plugin.registry import parse_settings
from toolwright.model.fingerprint import of_the_place
from toolwright.recipe import Tool
from toolwright.recipe.assignments import assign

pytestmark = pytest.mark.quick

OPTIONS: dict[str, Any] = {
    "simulated": {
        "endpoint": "http://127.0.0.1:30001/v1",
        "model": "7",
        "seed": 0,
        "pre_check": False,
        "temperature": 0.7,
        "cache_days": "none",
        "maker": {"model": "true", "endpoint": 'a "quoted" one'},
    },
    "swe": {"images": ["*", "a b"], "mounts": [{"from": "/a", "to": "/b"}]},
}


def test_a_service_reads_the_values_that_the_recipe_has() -> None:
    tool = Tool(serve=("simulated:", "--ready", "4"), options=OPTIONS)
    assert tool.words[:3] == ("simulated:", "--ready", "4")
    assert set(tool.words[3::2]) == {"--set"}
    assert parse_settings(list(tool.words[4::2])) == OPTIONS
    assert "simulated.pre_check=false" in tool.words


def test_one_assignment_changes_one_option() -> None:
    tables: dict[str, Any] = {"tools": {"played": {"serve": ["simulated:"], "options": OPTIONS}}}
    assign(tables, "tools.played.options.simulated.pre_check=true")
    words = Tool(**tables["tools"]["played"]).words
    assert [word for word in words if word.startswith("simulated.pre_check=")] == [
        "simulated.pre_check=true"
    ]


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"service": "127.0.0.1:1", "options": OPTIONS}, "`serve` starts"),
        ({"serve": ("search",), "options": {"topk": 3}}, "write options.TOOL.topk"),
    ],
)
def test_options_that_no_tool_gets_are_refused(table: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Tool(**table)


def test_options_may_differ_between_two_processes_as_the_words_of_serve_do() -> None:
    assert of_the_place("tools.played.options.simulated.endpoint")
    assert of_the_place("tools.played.serve")
    assert not of_the_place("tools.played.observation_keep")
