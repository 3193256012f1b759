"""What Prometheus is shown of the learner's loop."""

from __future__ import annotations

import math
from typing import Any

import pytest

from learner.loop.gauges import LAST, PHASES, LoopGauges

LINE: dict[str, Any] = {
    "groups": 3,
    "trajectories": 12,
    "trained_tokens": 100.0,
    **{f"{phase}_s": 2.0 for phase in PHASES},
    **dict.fromkeys(LAST, 0.5),
}


@pytest.fixture
def gauges() -> LoopGauges:
    return LoopGauges(max_staleness=2)


def value(gauges: LoopGauges, name: str, **labels: str) -> float | None:
    return gauges.registry.get_sample_value(f"toolwright_learner_{name}", labels)


def test_what_a_step_does_not_have_is_no_value_of_the_one_before(gauges: LoopGauges) -> None:
    gauges.step(1, LINE)
    gauges.step(2, {"groups": 3, "trajectories": 12})
    shown = value(gauges, "loss")
    assert shown is not None and math.isnan(shown)
    assert value(gauges, "trained_tokens_total") == 100
    assert value(gauges, "step_seconds_count", phase="train") == 1


def test_groups_are_acknowledged_by_checkpoints(gauges: LoopGauges) -> None:
    for step in (1, 2):
        gauges.step(step, LINE)
        gauges.published()
    assert (value(gauges, "groups_leased_total"), value(gauges, "groups_acknowledged_total")) == (
        6,
        0,
    )
    assert value(gauges, "checkpoint_timestamp_seconds") == 0
    gauges.saved()
    gauges.step(3, LINE)
    gauges.saved()
    assert value(gauges, "groups_acknowledged_total") == value(gauges, "groups_leased_total") == 9
    assert value(gauges, "versions_published_total") == 2
    assert value(gauges, "process_resident_memory_bytes") > 1 << 20
