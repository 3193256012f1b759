"""References between a recipe's values, the hostile ones too."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwright.recipe.references import LONGEST, ReferenceFault, replaced


def test_a_reference_is_the_keys_value() -> None:
    tables = {
        "memory": {"address": "${run.host}:1", "delta": 0.5, "on": True},
        "run": {"host": "::1"},
        "tools": {"m": {"serve": ["memory:${memory.address}", "x"], "n": {"o": "${memory.delta}"}}},
        "task": {"text": "${memory.on} $${memory.on} ${ {} $ }"},
    }
    found = replaced(tables)
    assert found["tools"] == {"m": {"serve": ["memory:::1:1", "x"], "n": {"o": "0.5"}}}
    assert found["task"] == {"text": "true ${memory.on} ${ {} $ }"}
    assert tables["memory"]["address"] == "${run.host}:1"


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"a": {"b": "${a.b}"}}, "a.b -> a.b"),
        ({"a": {"b": "${a.c}", "c": "${a.b}"}}, "leads in a circle"),
        ({"a": {"b": "${a.bb}", "bc": "x"}}, "did you mean"),
        ({"a": {"b": "${}"}}, r"\$\$\{"),
        ({"a": {"b": "${a}"}}, "is a table"),
        ({"a": {"b": "${a.c}", "c": [1]}}, "is a list"),
        ({"a": {"b": "${a.c.d.e}", "c": "x"}}, "does not set"),
        (
            {"a": {"x0": "x" * 100, **{f"x{n}": f"${{a.x{n - 1}}}" * 9 for n in range(1, 60)}}},
            f"more than {LONGEST} characters",
        ),
    ],
)
def test_what_leads_nowhere_is_said(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(ReferenceFault, match=told):
        replaced(tables)


def test_a_chain_is_followed_where_it_has_an_end() -> None:
    def chain(length: int) -> dict[str, str]:
        links = {f"x{n}": f"${{a.x{n - 1}}}" for n in range(length, 0, -1)}
        return {**links, "x0": "end"}

    assert replaced({"a": chain(90)})["a"]["x90"] == "end"
    with pytest.raises(ReferenceFault, match="lead to each other"):
        replaced({"a": chain(3000)})


def test_values_are_spelled_as_toml_does() -> None:
    text = "a = 1979-05-27\nb = 07:32:00\nc = inf\nd = nan\ne = 1.5\nf = -3\ng = true"
    names = "abcdefg"
    tables = {"v": tomllib.loads(text), "t": {name: f"${{v.{name}}}" for name in names}}
    spelled = {line[0]: line.partition(" = ")[2] for line in text.splitlines()}
    assert replaced(tables)["t"] == spelled


def test_a_text_of_many_references_ends_early() -> None:
    tables = {"a": {"big": "x" * 90_000, "all": "${a.big}" * 14_000}}
    with pytest.raises(ReferenceFault, match=f"more than {LONGEST}"):
        replaced(tables)


TEXTS = st.text(alphabet="${}ab.", max_size=12)


@given(st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.sampled_from("ab"), TEXTS)))
def test_every_text_has_an_answer(tables: dict[str, dict[str, str]]) -> None:
    try:
        found = replaced(tables)
    except ReferenceFault as fault:
        assert str(fault)
    else:
        assert found.keys() == tables.keys()
