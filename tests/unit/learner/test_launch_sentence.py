"""The sentence about the rank that ended first."""

from __future__ import annotations

import signal

import pytest

from learner.launch import first_to_end

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (3, "with status 3"),
        (-signal.SIGABRT, "by SIGABRT: NCCL's watchdog"),
        (-(signal.SIGRTMIN + 1), f"by signal {signal.SIGRTMIN + 1}: look"),
    ],
)
def test_it_names_status_or_signal(code: int, said: str) -> None:
    assert f"rank 2 ended first, {said}" in first_to_end(2, code)
