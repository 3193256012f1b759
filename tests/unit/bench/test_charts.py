"""Charts: values land where they belong."""

from __future__ import annotations

import re

import pytest

from bench import charts
from bench.charts import Line, Part, Point, line_chart, smooth, stacked_bar, ticks


def test_corners_of_a_line() -> None:
    line = Line(name="a", style="s", points=(Point(x=0, y=0), Point(x=10, y=1)))
    chart = line_chart([line], last=10, x_name="step", y_name="success")
    (path,) = re.findall(r'points="([^"]+)"', chart)
    (x0, y0), (x1, y1) = (map(float, point.split(",")) for point in path.split())
    assert (x0, x1) == (charts.LEFT, charts.WIDTH - charts.RIGHT)
    assert (y0, y1) == (charts.HEIGHT - charts.BOTTOM, charts.TOP)


def test_values_outside_stay_inside() -> None:
    line = Line(name="a", style="s", points=(Point(x=5, y=1.5), Point(x=5, y=-1)))
    chart = line_chart([line], last=10, x_name="step", y_name="success")
    ys = [float(y) for y in re.findall(r"[\d.]+,([\d.]+)", chart)]
    assert min(ys) == charts.TOP
    assert max(ys) == charts.HEIGHT - charts.BOTTOM


def test_shares_fill_the_bar() -> None:
    parts = [Part(name=str(n), style="s", value=n, text="t") for n in (1, 2, 5)]
    widths = [float(w) + 2 for w in re.findall(r'width="([\d.]+)"', stacked_bar(parts))]
    assert sum(widths) == pytest.approx(charts.WIDTH, abs=0.2)
    assert widths[2] == pytest.approx(charts.WIDTH * 5 / 8, abs=0.1)


def test_an_empty_bar_is_no_error() -> None:
    assert "<svg" in stacked_bar([])


def test_smooth() -> None:
    assert smooth([1, 2, 3, 4], 2) == [1, 1.5, 2.5, 3.5]
    assert smooth([], 3) == []


@pytest.mark.parametrize(
    ("last", "found"),
    [
        (200, [0, 25, 50, 75, 100, 125, 150, 175, 200]),
        (3, [0, 0.5, 1, 1.5, 2, 2.5, 3]),
        (0, [0]),
    ],
)
def test_ticks_are_round(last: float, found: list[float]) -> None:
    assert ticks(last) == pytest.approx(found)
