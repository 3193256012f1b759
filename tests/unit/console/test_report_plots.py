"""What a recipe measures beside its reward, `measured/NAME`: which plots a report has of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from console.report.measured import MOST_FIGURES
from console.report.plot import draw
from tests.support.run_folders import lines, step
from tests.unit.console.test_report import HOSTILE, Page, report


def leave(folder: Path, *rows: dict[str, Any]) -> Path:
    """Steps that measured these figures."""
    found = (
        step(number, **{f"measured/{name}": value for name, value in row.items()})
        for number, row in enumerate(rows, 1)
    )
    lines(folder / "learner.jsonl", found)
    return folder


def shown(data: dict[str, Any]) -> dict[str, list[tuple[str, list[float], list[float]]]]:
    """By plot: its lines."""
    return {
        plot["key"]: [(one["name"], one["x"], one["y"]) for one in plot["lines"]]
        for plot in data["measured_plots"]
    }


def test_a_plot_for_each_figure_and_conditions_beside_what_they_are_of(tmp_path: Path) -> None:
    run = leave(
        tmp_path / "run",
        {"searches": 2.0, "searches_if_right": 1.5, "remembered": 0.25},
        {"searches": 1.0, "query_likeness": -0.5},
    )
    text, data = report(run)
    assert shown(data) == {
        "measured:query_likeness": [("query_likeness", [2], [-0.5])],
        "measured:remembered": [("remembered", [1], [0.25])],
        "measured:searches": [("searches", [1, 2], [2, 1]), ("searches_if_right", [1], [1.5])],
    }
    assert [plot["low"] for plot in data["measured_plots"]] == [None, 0, 0]
    assert "What the recipe measures" in text
    page = Page(text)
    assert ("/measured_plots/2/title", "text", None, "searches") in page.figures
    assert all(draw(plot, wide=False) in text for plot in data["measured_plots"])


def test_figures_of_strangers_are_text_and_bounded(tmp_path: Path) -> None:
    many = {f"n{number:03}": 1.0 for number in range(MOST_FIGURES + 8)}
    bad: dict[str, Any] = {"nan": float("nan"), "text": "x", "huge": 10**400, "": 1.0}
    run = leave(tmp_path / "run", {HOSTILE: 1.0, **many, **bad})
    text, data = report(run)
    assert len(data["measured_plots"]) == MOST_FIGURES
    assert data["measured_plots"][-1]["note"] == "9 more figures are in learner.jsonl."
    assert "<script" not in text and "onload='x'" not in text
    Page(text)
