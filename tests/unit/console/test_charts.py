"""Charts: values land where they belong, whatever they are."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from hypothesis import example, given
from hypothesis import strategies as st

from console.record.lines import LARGEST
from toolwright.page.charts import (
    WIDE,
    Line,
    Point,
    line_chart,
    ticks,
)


def line(*points: tuple[float, float], **more: object) -> Line:
    return Line(name="a", style="s", points=tuple(Point(x=x, y=y) for x, y in points), **more)  # type: ignore[arg-type]


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
    log=st.booleans(),
    name=st.text(),
)
@example(points=[(0.0, 4.6e266, 0.0)], log=True, name="")
def test_every_point_lies_on_its_chart(
    points: list[tuple[float, float, float]], log: bool, name: str
) -> None:
    measured = tuple(Point(x=x, y=y, error=e) for x, y, e in points)
    lines = [Line(name=name, style="s", points=measured, dots="seen")]
    chart = line_chart(lines, x_name=name, y_name=name, log=log)
    ElementTree.fromstring(chart)
    for x, y in (place for path in drawn(chart) for place in path):
        assert 0 <= x <= WIDE.width and 0 <= y <= WIDE.height


def test_names_on_an_axis_are_escaped() -> None:
    chart = line_chart([line((0, 1), (1, 2))], x_name="x", y_name="y", labels=["32", "<64>"])
    assert ">&lt;64&gt;</text>" in chart
