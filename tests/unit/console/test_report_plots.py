"""Plots that a report has of several tasks, and of what a recipe measures (`measured/NAME`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from console.report.measured import MOST_FIGURES
from console.report.tasks import MOST_LINES
from tests.support.run_folders import evaluation, lines, step
from tests.support.stills import plots_of
from tests.unit.console.test_report import HOSTILE, report


def reported(folder: Path, *rows: dict[str, Any]) -> dict[str, Any]:
    """The summary of a run whose steps have these figures."""
    lines(folder / "learner.jsonl", (step(number, **row) for number, row in enumerate(rows, 1)))
    return report(folder)[1]


def shown(plots: Iterable[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """By plot: the values of its lines."""
    return {plot["key"]: {one["name"]: one["y"] for one in plot["lines"]} for plot in plots}


def of(key: str, data: dict[str, Any]) -> list[dict[str, Any]]:
    """The plots of a section."""
    return [plot for one in data["sections"] if one["key"] == key for plot in one["plots"]]


def test_each_task_has_a_line_and_each_pair_of_gradients(tmp_path: Path) -> None:
    data = reported(
        tmp_path,
        {
            "task/sums/reward": 0.25, "task/shop/reward": 0.5, "task/sums/entropy": 1.5,
            "task/sums/trajectories": 8, "task/sums/stop/answered": 6,
            "task/shop/trajectories": 4, "gradient_cosine/sums,shop": -0.25,
        },
        {"task/sums/reward": 0.75, "task/shop/reward": 0.25},
    )  # fmt: skip
    assert shown(of("tasks", data)) == {
        "task:answered": {"sums": [0.75], "shop": [0]},
        "task:conflict": {"sums and shop": [-0.25]},
        "task:reward": {"sums": [0.25, 0.75], "shop": [0.5, 0.25]},
        "task:entropy": {"sums": [1.5]},
    }


def test_a_plot_for_each_figure_and_conditions_beside_what_they_are_of(tmp_path: Path) -> None:
    first = {"searches": 2.0, "searches_if_right": 1.5, "remembered": 0.25}
    second = {"searches": 1.0, "query_likeness": -0.5}
    rows = ({f"measured/{name}": value for name, value in row.items()} for row in (first, second))
    data = reported(tmp_path, *rows)
    assert shown(of("measured", data)) == {
        "measured:query_likeness": {"query_likeness": [-0.5]},
        "measured:remembered": {"remembered": [0.25]},
        "measured:searches": {"searches": [2, 1], "searches_if_right": [1.5]},
    }
    assert [plot["low"] for plot in of("measured", data)] == [None, 0, 0]


def test_a_deviation_is_an_area_around_its_figure(tmp_path: Path) -> None:
    first = {"query_length": 50.0, "query_length_deviation": 12.5, "odd_deviation": 1.0}
    second = {"query_length": 40.0}
    rows = ({f"measured/{name}": value for name, value in row.items()} for row in (first, second))
    data = reported(tmp_path, *rows)
    plots = {plot["key"]: plot for plot in of("measured", data)}
    assert list(plots) == ["measured:odd_deviation", "measured:query_length"]
    (length,) = plots["measured:query_length"]["lines"]
    assert (length["y"], length["error"], length["band"]) == ([50, 40], [12.5, 0], True)
    assert plots["measured:query_length"]["unit"] == "mean and standard deviation"
    assert plots["measured:query_length"]["low"] == 0


def evaluated(folder: Path, rewards: dict[str, list[float]], **more: Any) -> Path:
    """A run in which suites were evaluated at steps 0, 10, ..."""
    lines(folder / "learner.jsonl", [step(20)])
    found = [
        evaluation(f"{suite}-greedy", 10 * number, reward, **more)
        for suite, of_suite in rewards.items()
        for number, reward in enumerate(of_suite)
    ]
    lines(folder / "evaluations.jsonl", found)
    return folder


def test_suites_over_each_other_with_their_average(tmp_path: Path) -> None:
    run = evaluated(tmp_path / "a", {"nq": [0.25, 0.5], "bamboogle": [0.0, 0.25, 0.5]})
    _, data = report(run)
    assert shown(of("suites", data))["suites"] == {
        "nq": [0.25, 0.5],
        "bamboogle": [0.0, 0.25, 0.5],
        "average of 2 suites": [0.125, 0.375],
    }
    other = evaluated(tmp_path / "b", {"nq": [0.5, 0.5], "bamboogle": [0.0, 0.0]})
    _, data = report(run, other)
    (plot,) = (one for one in of("suites", data) if one["key"] == "suites")
    assert [(one["run"], one["y"]) for one in plot["lines"]] == [
        ("a", [0.125, 0.375]), ("b", [0.25, 0.25])
    ]  # fmt: skip
    _, data = report(evaluated(tmp_path / "c", {"nq": [0.25, 0.5]}))
    assert "suites" not in shown(of("suites", data))


def test_rates_of_suites_have_plots(tmp_path: Path) -> None:
    rates = {"malformed": {"rate": 0.25, "of": 8, "standard_error": 0.1}, "odd": 1, "": {}}
    run = evaluated(tmp_path / "a", {"nq": [0.25, 0.5]}, rates=rates)
    found = shown(of("suites", report(run)[1]))
    assert found["rate:malformed"] == {"nq": [0.25, 0.25]}
    assert not {"rate:odd", "rate:"} & set(found)


def test_turns_and_times_of_trajectories(tmp_path: Path) -> None:
    data = reported(
        tmp_path,
        {"calls": 2.0, "turns": 3.0, "tool_s": 0.5, "generate_s": 1.5},
        {"calls": 0.0, "turns": 1.0, "tool_s": 0.0, "generate_s": 1.0},
    )
    found = shown(plots_of(data))
    assert found["calls"] == {"calls": [2, 0], "turns": [3, 1]}
    assert found["times"] == {"the model generated": [1.5, 1], "tools worked": [0.5, 0]}
    assert found["latency"] == {"mean": [0.25]}


def test_names_and_figures_of_strangers_are_text_and_bounded(tmp_path: Path) -> None:
    odd: dict[str, Any] = {"nan": float("nan"), "text": "x", "huge": 10**400, "": 1.0}
    figures = odd | {f"n{number:03}": 1.0 for number in range(MOST_FIGURES + 8)} | {HOSTILE: 1.0}
    tasks = [HOSTILE, "", *(f"n{number}" for number in range(MOST_LINES + 4))]
    row = {f"measured/{name}": value for name, value in figures.items()}
    row |= {f"task/{name}/reward": 1.0 for name in tasks} | {"gradient_cosine/": 0.5, "task/": 1.0}
    data = reported(tmp_path, row)
    assert len(of("measured", data)) == MOST_FIGURES
    assert of("measured", data)[-1]["note"] == "9 more figures are in learner.jsonl."
    assert len(shown(plots_of(data))["task:reward"]) <= MOST_LINES
