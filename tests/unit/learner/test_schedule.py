"""The rate over steps."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from learner.config.weights import Optimizer, SftOptimizer
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


def test_a_ratio_warms_up_over_its_share_of_the_steps_rounded_up() -> None:
    settings = Optimizer(warmup_ratio=0.05)
    shares = [fraction(settings, step, 61) for step in range(5)]
    assert shares == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_steps_go_before_the_ratio_that_a_table_has_by_itself() -> None:
    assert fraction(SftOptimizer(warmup_steps=2, decay="constant"), 0, 1000) == pytest.approx(0.5)
    with pytest.raises(ValidationError, match="set one of them to 0"):
        SftOptimizer(warmup_steps=2, warmup_ratio=0.1)
