"""ablate.html: the figures of ablate.json, with its numbers as the terminal's table writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from console.ablate.results.table import difference, ended, legend, mean, number
from console.report.writing import REPORT
from console.web.files import file_of


def render(data: Mapping[str, Any]) -> str:
    """The whole page of `figures.figures`, as it is or read back from ablate.json."""
    rows = [
        _row(row, {one["key"]: one["form"] for one in data["measures"]}) for row in data["rows"]
    ]
    title = f"Variations of {data['recipe']}"
    return file_of("ladder", title, {**data, "rows": rows, "legend": legend(data)})


def _row(row: Mapping[str, Any], forms: Mapping[str, str]) -> dict[str, Any]:
    return {
        **row,
        "shown": {key: mean(one, forms[key]) for key, one in row["means"].items()},
        "shown_differences": {
            key: difference(one, forms[key]) for key, one in row["differences"].items()
        },
        "runs": [
            {
                **run,
                "ended": ended(run),
                "report": quote(f"{run['folder']}/{REPORT}") if run["steps"] else "",
                "shown": {key: number(one, forms[key]) for key, one in run["values"].items()},
            }
            for run in row["runs"]
        ],
    }
