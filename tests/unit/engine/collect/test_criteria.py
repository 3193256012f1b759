"""The names of --keep's criteria."""

from __future__ import annotations

import pytest

from engine.errors import StartupError
from engine.offline.collect.criteria import parse_criteria


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["./a.py:right"], {"right": "./a.py:right"}),
        (
            ["engine.offline.collect.criteria:rewarded"],
            {"rewarded": "engine.offline.collect.criteria:rewarded"},
        ),
        (["one=./a.py:f", "two=./b.py:f"], {"one": "./a.py:f", "two": "./b.py:f"}),
        (["./a=b.py:f"], {"f": "./a=b.py:f"}),
        (["x=./a=b.py:f"], {"x": "./a=b.py:f"}),
        ([], {}),
    ],
)
def test_a_criterion_is_called_by_its_name_or_its_function(
    given: list[str], found: dict[str, str]
) -> None:
    assert parse_criteria(given) == found
    assert list(parse_criteria(given)) == list(found)


@pytest.mark.parametrize("given", [["./a.py:f", "./b.py:f"], ["f=./a.py:g", "./b.py:f"]])
def test_two_of_one_name_are_refused(given: list[str]) -> None:
    with pytest.raises(StartupError, match="are both called 'f': name them, --keep NAME="):
        parse_criteria(given)
