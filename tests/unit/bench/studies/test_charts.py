"""Charts: values land where they belong, whatever they are."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from bench.studies.charts import LARGEST, Line, Point, line_chart, ticks
from bench.studies.drawing import SIZE


def drawn(chart: str) -> list[list[tuple[float, float]]]:
    """Places of all curves and areas."""
    paths = re.findall(r'points="([^"]*)"', chart)
    return [
        [(float(x), float(y)) for x, y in (pair.split(",") for pair in path.split())]
        for path in paths
    ]


@given(low=st.floats(-1e9, 1e9), size=st.floats(1e-6, 1e9))
def test_ticks_are_few_and_inside(low: float, size: float) -> None:
    found = ticks(low, low + size, 5)
    room = 1e-6 * max(1.0, abs(low), size)
    assert 1 <= len(found) <= 8
    assert all(low - room <= tick <= low + size + room for tick in found)
    assert found == sorted(found) and all(map(math.isfinite, found))


@given(
    points=st.lists(
        st.tuples(st.floats(0, 1e6), st.floats(-LARGEST, LARGEST), st.floats(0, LARGEST)),
        min_size=1,
        max_size=20,
    ),
    name=st.text(),
)
def test_every_point_lies_on_its_chart(points: list[tuple[float, float, float]], name: str) -> None:
    measured = tuple(Point(x=x, y=y, error=e) for x, y, e in points)
    lines = [Line(name=name, style="s", points=measured)]
    chart = line_chart(lines, x_name=name, y_name=name, labels=[name, "<64>"], size=SIZE)
    ElementTree.fromstring(chart)
    assert ">&lt;64&gt;</text>" in chart
    for x, y in (place for path in drawn(chart) for place in path):
        assert 0 <= x <= SIZE.width and 0 <= y <= SIZE.height
