"""The rate over steps."""

from __future__ import annotations

import pytest

from learner.config import Optimizer
from learner.maths.schedule import fraction


def test_warm_up_reaches_the_peak_with_its_last_step() -> None:
    settings = Optimizer(warmup_steps=4)
    shares = [fraction(settings, step, 100) for step in range(6)]
    assert shares == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


@pytest.mark.parametrize(("decay", "middle"), [("linear", 0.625), ("cosine", 0.625)])
def test_decay_ends_at_the_fraction(decay: str, middle: float) -> None:
    settings = Optimizer.model_validate({"decay": decay, "min_fraction": 0.25})
    assert fraction(settings, 0, 100) == pytest.approx(1.0)
    assert fraction(settings, 50, 100) == pytest.approx(middle)
    assert fraction(settings, 100, 100) == pytest.approx(0.25)


def test_constant_stays() -> None:
    assert {fraction(Optimizer(), step, 10) for step in range(10)} == {1.0}
