"""Charts: values land where they belong, whatever they are."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from bench.studies.charts import HEIGHT, LARGEST, WIDTH, Line, Point, line_chart, ticks
from bench.studies.drawing import lines_over


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
    measured = tuple(Point(x=x, label=name, y=y, error=e) for x, y, e in points)
    lines = [Line(name=name, style="s", points=measured)]
    chart = line_chart(lines, x_name=name, y_name=name, labels=[name, "<64>"])
    ElementTree.fromstring(f"<svg>{chart}</svg>")
    assert ">&lt;64&gt;</text>" in chart
    for x, y in (place for path in drawn(chart) for place in path):
        assert 0 <= x <= WIDTH and 0 <= y <= HEIGHT


def test_a_dot_names_the_label_below_it() -> None:
    stages = ["0 to 4", "5 to 14"]
    picture = lines_over(stages, {"a": [None, (0.7, None)]}, x_name="steps", y_name="share")
    assert "<title>a, steps 5 to 14: 0.7</title>" in picture
