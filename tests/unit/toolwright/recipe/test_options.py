"""Options of a recipe's classes, checked by their types."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import Field

from engine.api import Options, Score

pytestmark = pytest.mark.quick


class Close(Options):
    within: float = Field(0.0, ge=0)
    mode: Literal["near", "exact"] = "near"

    def __call__(self, trajectory: object) -> Score:
        return Score.of({"right": -0.0}, measured={"within": self.within})


def test_a_class_with_options_is_a_function() -> None:
    score = Close(within=1)(None)
    assert [(part.name, part.value) for part in score.parts] == [("right", 0.0)]
    assert [event.data for event in score.events] == [{"within": 1.0}]


@pytest.mark.parametrize(
    "options",
    [{"within": -1}, {"within": True}, {"within": float("nan")}, {"mode": "far"}, {"withn": 1}],
)
def test_what_does_not_fit_is_named(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=name):
        Close(**options)
