"""Boxes of a flat range: what a rank of a distributed optimizer writes of a weight."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.saving.split_optimizer import boxes

pytestmark = pytest.mark.quick


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_boxes_hold_the_range_in_order(shape: list[int], data: st.DataObject) -> None:
    size = math.prod(shape)
    start = data.draw(st.integers(0, size))
    end = data.draw(st.integers(0, size))
    whole = np.arange(size).reshape(shape)
    found = list(boxes(shape, start, end))
    held = []
    for offset, extent in found:
        part = whole[tuple(slice(o, o + e) for o, e in zip(offset, extent, strict=True))]
        assert part.shape == extent and part.size
        held.extend(part.flatten().tolist())
    assert held == list(range(start, end))
    assert len(found) <= 2 * len(shape) - 1
