"""The first 500 schedules of the simulator keep every promise. They are quick though they take a
minute of CPU: every change of the engine has to pass them."""

from __future__ import annotations

import pytest

from tests.support.schedules import A_TEST, check

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("seed", range(0, 500, A_TEST))
def test_every_promise_is_kept(seed: int) -> None:
    check(seed)
