"""Plots that a report has of several tasks, and of what a recipe measures (`measured/NAME`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from console.report.measured import MOST_FIGURES
from console.report.plot import draw
from console.report.tasks import MOST_LINES
from tests.support.run_folders import lines, step
from tests.unit.console.test_report import HOSTILE, Page, report


def reported(folder: Path, *rows: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(page, summary) of a run whose steps have these figures."""
    lines(folder / "learner.jsonl", (step(number, **row) for number, row in enumerate(rows, 1)))
    return report(folder)


def shown(plots: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """By plot: the values of its lines."""
    return {plot["key"]: {one["name"]: one["y"] for one in plot["lines"]} for plot in plots}


def of_tasks(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [plot for plot in data["plots"] if plot["key"].startswith("task:")]


def test_each_task_has_a_line_and_each_pair_of_gradients(tmp_path: Path) -> None:
    text, data = reported(
        tmp_path,
        {
            "task/sums/reward": 0.25, "task/shop/reward": 0.5, "task/sums/entropy": 1.5,
            "task/sums/trajectories": 8, "task/sums/stop/answered": 6,
            "task/shop/trajectories": 4, "gradient_cosine/sums,shop": -0.25,
        },
        {"task/sums/reward": 0.75, "task/shop/reward": 0.25},
    )  # fmt: skip
    assert shown(of_tasks(data)) == {
        "task:answered": {"sums": [0.75], "shop": [0]},
        "task:conflict": {"sums and shop": [-0.25]},
        "task:reward": {"sums": [0.25, 0.75], "shop": [0.5, 0.25]},
        "task:entropy": {"sums": [1.5]},
    }
    assert all(draw(plot, wide=False) in text for plot in of_tasks(data))


def test_a_plot_for_each_figure_and_conditions_beside_what_they_are_of(tmp_path: Path) -> None:
    first = {"searches": 2.0, "searches_if_right": 1.5, "remembered": 0.25}
    second = {"searches": 1.0, "query_likeness": -0.5}
    rows = ({f"measured/{name}": value for name, value in row.items()} for row in (first, second))
    text, data = reported(tmp_path, *rows)
    assert shown(data["measured_plots"]) == {
        "measured:query_likeness": {"query_likeness": [-0.5]},
        "measured:remembered": {"remembered": [0.25]},
        "measured:searches": {"searches": [2, 1], "searches_if_right": [1.5]},
    }
    assert [plot["low"] for plot in data["measured_plots"]] == [None, 0, 0]
    assert all(draw(plot, wide=False) in text for plot in data["measured_plots"])


def test_names_and_figures_of_strangers_are_text_and_bounded(tmp_path: Path) -> None:
    odd: dict[str, Any] = {"nan": float("nan"), "text": "x", "huge": 10**400, "": 1.0}
    figures = odd | {f"n{number:03}": 1.0 for number in range(MOST_FIGURES + 8)} | {HOSTILE: 1.0}
    tasks = [HOSTILE, "", *(f"n{number}" for number in range(MOST_LINES + 4))]
    row = {f"measured/{name}": value for name, value in figures.items()}
    row |= {f"task/{name}/reward": 1.0 for name in tasks} | {"gradient_cosine/": 0.5, "task/": 1.0}
    text, data = reported(tmp_path, row)
    assert len(data["measured_plots"]) == MOST_FIGURES
    assert data["measured_plots"][-1]["note"] == "9 more figures are in learner.jsonl."
    assert len(shown(data["plots"])["task:reward"]) <= MOST_LINES
    assert "<script" not in text and "onload='x'" not in text
    Page(text)
