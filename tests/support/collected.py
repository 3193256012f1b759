"""`engine sample` run in the test's own process, and what its file holds."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bench.scripted import Script, ScriptRequest
from engine.config import EngineTable
from engine.offline.collect import command
from engine.offline.collect.options import CollectionOptions
from engine.offline.enums import ExportLayout
from tests.support.dialogue import ANSWER, CALL, by_turn
from tests.support.recipes import merged, write_recipe
from toolwright.recipe import load_recipe
from toolwright.trajectory_files import read_trajectories
from toolwright.types import Trajectory

if TYPE_CHECKING:
    from tests.integration.engine.conftest import World


async def collect(here: World, *, changes: dict[str, Any] | None = None, **options: Any) -> str:
    """Runs the command as the command line does; the summary."""
    file = write_recipe(here.folder, merged(here.tables, changes or {}))
    recipe = load_recipe(file)
    given = {"output": here.folder / "kept", "folder": here.folder, "n": 4, **options}
    given.setdefault("progress", io.StringIO())
    if isinstance(one := given.get("keep"), str):
        given["keep"] = (one,)
    if given.get("export") is True:
        given["export"] = (ExportLayout.JSONL,)
    shown: list[str] = []
    async with asyncio.timeout(30):
        table = recipe.table("engine", EngineTable)
        return await command.collect(recipe, table, CollectionOptions(**given), shown.append)


def kept(here: World) -> list[Trajectory]:
    return list(read_trajectories(here.folder / "kept"))


def progress(here: World) -> list[dict[str, Any]]:
    """Whole lines of the tasks that are done."""
    file = here.folder / "kept.progress.jsonl"
    whole = file.read_text(encoding="utf-8").split("\n")[1:-1] if file.exists() else []
    return [json.loads(line) for line in whole]


WRONG = ANSWER.replace("2", "3")
VARIANTS: Sequence[tuple[Sequence[str], frozenset[str]]] = (
    ((CALL, ANSWER), frozenset()),
    ((CALL, WRONG), frozenset({"right"})),
    ((ANSWER,), frozenset({"called"})),
    ((WRONG,), frozenset({"right", "called"})),
    ((CALL, "so " + CALL, CALL, ANSWER), frozenset({"few"})),
    (("well " + CALL, ANSWER), frozenset()),
    ((CALL, CALL, CALL, WRONG), frozenset({"right", "few"})),
)
"""What the policy says of a task, and which criteria of CRITERIA refuse it. The sixth makes the
same call as the first."""
CRITERIA = """
def called(trajectory):
    return len(trajectory.calls) >= 1


def few(trajectory):
    return len(trajectory.calls) <= 2
"""
KEEPS = ("right=engine.api:rewarded", "./criteria.py:called", "./criteria.py:few")


class Varied:
    """A policy whose trajectory `index` of task `position` is one of VARIANTS, always the same."""

    def __init__(self) -> None:
        self._scripts: list[Script] = []

    def speak(self, here: World) -> None:
        (here.folder / "criteria.py").write_text(CRITERIA, encoding="utf-8")
        self._scripts = [by_turn(here.codec, replies) for replies, _ in VARIANTS]
        here.sampler._script = self

    def __call__(self, request: ScriptRequest) -> Iterable[int]:
        name = request.conversation.partition("/")[0].removeprefix("s")
        position, _, index = name.partition("-")
        return self._scripts[variant(int(position), int(index))](request)


def variant(position: int, index: int) -> int:
    return (3 * position + 5 * index) % len(VARIANTS)


def keep(here: World, body: str) -> str:
    (here.folder / "my_keep.py").write_text(
        f"def keep(trajectory):\n    {body}\n", encoding="utf-8"
    )
    return "./my_keep.py:keep"
