"""Every golden example of every element that is built."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.golden.adapters import ADAPTERS

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text(encoding="utf-8"))
TOLERANCE = GOLDEN["meta"]["tolerance"]
EXAMPLES = [
    pytest.param(element, case, id=f"{element}-{case['name']}")
    for element, cases in GOLDEN["cases"].items()
    if element in ADAPTERS
    for case in cases
]


@pytest.mark.parametrize(("element", "case"), EXAMPLES)
def test_golden(element: str, case: dict[str, Any]) -> None:
    found = ADAPTERS[element](**case["input"])
    assert_close(found, case["expected"], case.get("tol", TOLERANCE), "")


def test_every_adapter_has_examples() -> None:
    assert set(ADAPTERS) <= set(GOLDEN["cases"])


def assert_close(found: Any, expected: Any, tolerance: float, where: str) -> None:
    """Numbers within the tolerance (relative and absolute mixed), everything else equal."""
    if isinstance(expected, dict):
        assert set(expected) <= set(found), where
        for key, value in expected.items():
            assert_close(found[key], value, tolerance, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for place, value in enumerate(expected):
            assert_close(found[place], value, tolerance, f"{where}[{place}]")
    elif isinstance(expected, int | float) and not isinstance(expected, bool):
        assert math.isclose(found, expected, rel_tol=tolerance, abs_tol=tolerance), (
            f"{where}: {found} instead of {expected}"
        )
    else:
        assert found == expected, where


def test_what_the_examples_leave_out() -> None:
    assert ADAPTERS["searl.return_to_go"](rewards=[0.1, None, -0.1], gamma=0.5) == pytest.approx(
        [0.075, -0.05, -0.1]
    )
    assert ADAPTERS["verltool.reward_swe"](correct=True, timed_out=True) == 0.0
    assert set(ADAPTERS["mtr.power_law"](frequencies=[3, 2])) == {"exponent", "log_c", "r2"}
