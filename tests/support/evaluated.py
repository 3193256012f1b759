"""Folders of `engine eval` as tests write and read them, and the command in the test's process."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import EngineTable
from engine.offline.evaluate.command import evaluate
from engine.offline.evaluate.folder import EvaluationFolder, EvaluationSettings, SuiteSize
from engine.offline.evaluate.options import EvaluationOptions
from engine.serving.evaluation.results import rows_file
from tests.support.recipes import merged, write_recipe
from toolwright.recipe import load_recipe

if TYPE_CHECKING:
    from tests.integration.engine.conftest import World

VERSION = "default.0"


def row(index: int, reward: float = 1.0, **fields: Any) -> dict[str, Any]:
    """A measured row's line, but for its settings."""
    return {
        "index": index, "task_id": f"q{index}", "data_source": "", "reward": reward,
        "parts": {"em": reward}, "stop_reason": "answered", "calls": 1, "response_tokens": 10,
        "input_tokens": 100, "seconds": 2.0, "masked": False, "errored": "", **fields,
    }  # fmt: skip


def begun(*suites: tuple[str, int], samples: int = 1, **settings: str) -> EvaluationSettings:
    """suites: (name, rows)."""
    return EvaluationSettings(
        name="test",
        weights="default of /weights",
        version=VERSION,
        samples=samples,
        suites=[SuiteSize(name=name, n=n, questions=n // samples) for name, n in suites],
        settings={"weights": "default", **settings},
    )


def evaluation(
    path: Path, rows: Mapping[str, Iterable[Mapping[str, Any]]], *, samples: int = 1, n: int = 0
) -> Path:
    """A folder with rows by suite. n: rows that were asked; 0 = as many as there are."""
    found = {name: list(lines) for name, lines in rows.items()}
    what = begun(*((name, n or len(lines)) for name, lines in found.items()), samples=samples)
    folder = EvaluationFolder(path)
    folder.claim()
    folder.begin(what)
    folder.close()
    for name, lines in found.items():
        file = rows_file(path, name, VERSION)
        file.parent.mkdir(exist_ok=True)
        said = ({"settings": what.digest, **line} for line in lines)
        file.write_text("".join(json.dumps(line) + "\n" for line in said), encoding="utf-8")
    return path


async def asked(
    here: World, *, changes: Mapping[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    """Runs `engine eval` as the command line does; the results."""
    recipe = load_recipe(write_recipe(here.folder, merged(here.tables, changes or {})))
    given = {"output": here.folder / "eval", "progress": io.StringIO(), **options}
    async with asyncio.timeout(60):
        table = recipe.table("engine", EngineTable)
        return await evaluate(recipe, table, EvaluationOptions(**given), lambda _line: None)


def lines(folder: Path) -> list[dict[str, Any]]:
    """All rows' lines of a folder."""
    files = sorted((folder / "evaluations").glob("*.jsonl"))
    return [
        json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()
    ]
