"""Several tasks in one run: which plots a report has of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from console.report.plot import draw
from console.report.tasks import MOST_LINES
from tests.support.run_folders import lines, step
from tests.unit.console.test_report import HOSTILE, report


def leave(folder: Path, *rows: dict[str, Any]) -> Path:
    lines(folder / "learner.jsonl", (step(number, **row) for number, row in enumerate(rows, 1)))
    return folder


def shown(data: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """By plot of tasks: the values of its lines."""
    return {
        plot["key"]: {one["name"]: one["y"] for one in plot["lines"]}
        for plot in data["plots"]
        if plot["key"].startswith("task:")
    }


def test_each_task_has_a_line_and_each_pair_of_gradients(tmp_path: Path) -> None:
    run = leave(
        tmp_path / "run",
        {
            "task/sums/reward": 0.25, "task/shop/reward": 0.5, "task/sums/entropy": 1.5,
            "task/sums/trajectories": 8, "task/sums/stop/answered": 6,
            "task/shop/trajectories": 4, "gradient_cosine/sums,shop": -0.25,
        },
        {"task/sums/reward": 0.75, "task/shop/reward": 0.25},
    )  # fmt: skip
    text, data = report(run)
    found = shown(data)
    assert found == {
        "task:answered": {"sums": [0.75], "shop": [0]},
        "task:conflict": {"sums and shop": [-0.25]},
        "task:reward": {"sums": [0.25, 0.75], "shop": [0.5, 0.25]},
        "task:entropy": {"sums": [1.5]},
    }
    drawn = [plot for plot in data["plots"] if plot["key"].startswith("task:")]
    assert all(draw(plot, wide=False) in text for plot in drawn)
    assert "Do the tasks pull in one direction?" in text


def test_names_of_strangers_are_text_and_bounded(tmp_path: Path) -> None:
    row = {f"task/n{number}/reward": 1.0 for number in range(MOST_LINES + 4)}
    bad = {
        f"task/{HOSTILE}/reward": 1.0,
        "task/": 1.0,
        "gradient_cosine/": 0.5,
        "task//reward": 1.0,
    }
    text, data = report(leave(tmp_path / "run", {**bad, **row}))
    assert len(shown(data)["task:reward"]) <= MOST_LINES
    assert HOSTILE not in text
