"""What a step says about itself."""

from __future__ import annotations

import pytest

from learner.metrics import gap_of, training_stats, trajectory_stats
from tests.integration.learner.fake_engine import random_group
from toolwright.types import Group, WeightVersion

V = WeightVersion(lineage="a", step=3)


def test_masked_trajectories_count_only_as_masked() -> None:
    from dataclasses import replace
    from pathlib import Path

    first, *others = random_group(1, V, Path())
    group = Group(id="g1", trajectories=(replace(first, masked=True, reward=9.0), *others))
    facts = trajectory_stats([group], WeightVersion(lineage="a", step=5))
    assert (facts["masked"], facts["trajectories"]) == (1, 4)
    assert facts["reward"] == pytest.approx(2 / 3)
    assert facts["reward/answer"] == pytest.approx(2 / 3)
    assert facts["staleness_max"] == 2
    assert facts["stop/answered"] == 4


def test_nothing_gives_no_numbers_instead_of_nan() -> None:
    assert training_stats({}) == {}
    assert gap_of({"fresh_tokens": 0.0}) == {}
    assert trajectory_stats([], V) == {"groups": 0, "trajectories": 0, "masked": 0}


def test_sums_become_means() -> None:
    sums = {"tokens": 4.0, "entropy": 2.0, "clipped": 1.0, "gap": 0.4, "max_gap": 0.3, "loss": 1.5}
    out = training_stats(sums)
    assert out["entropy"] == 0.5
    assert out["clip_fraction"] == 0.25
    assert out["loss"] == 1.5
