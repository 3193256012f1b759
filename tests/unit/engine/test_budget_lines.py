"""What `engine check` says of limits that whole observations use up."""

from __future__ import annotations

import re

import pytest

from engine.config import Suite
from engine.offline.check.budgets import budget_lines
from engine.serving.evaluation.suite import limits_of
from toolwright.recipe import Limits

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("limits", "prompt", "words"),
    [
        ({"turns": 2, "observation": 100, "response": 201}, 0, None),
        ({"turns": 2, "observation": 100, "response": 200}, 0, "response = 200 is full after 1 of"),
        ({"turns": 5, "response": 2048}, 0, "warning: k.turns x observation = 5 x 1024 = 5120"),
        ({"turns": 5, "policy": 2048, "model": 8192}, 1024, None),
        ({"turns": 5, "policy": 2048, "model": 8192}, 1025, "k.model = 8192 beside a prompt of"),
        ({"turns": 5, "policy": 2048, "model": 4096}, 0, "warning: .* and k.policy = 2048 is full"),
        ({"turns": 1, "policy": 9, "response": 8}, 0, "warning: k.response = 8 has no effect"),
        ({"turns": 9, "response": 4096, "model": 4096}, 4095, "warning: .*k.model .* after 0 of"),
        ({"turns": 0, "response": 1, "model": 2}, 0, None),
    ],
)
def test_observations_are_laid_beside_the_budgets(
    limits: dict[str, int], prompt: int, words: str | None
) -> None:
    said = "\n".join(budget_lines(Limits(**limits), prompt, "k"))  # type: ignore[arg-type]
    if words is None:
        assert said == ""
    else:
        assert re.search(words, said), said


def test_a_suite_that_names_a_response_counts_by_it() -> None:
    suite = Suite(name="s", source="s.jsonl", n=1, limits=Limits(response=200, observation=100))
    found = limits_of(suite, Limits(turns=2, policy=50))
    assert (found.policy, found.response) == (0, 200)
    assert "full after 1 of" in "\n".join(budget_lines(found, 0, "k"))
