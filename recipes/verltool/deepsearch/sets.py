"""The published sets, as the recipe's sources: training, and four suites of evaluation.

The files lie in `data/` beside this one; `tasks list` says where each comes from and how many rows
it has. `task.messages` then hold the bare question: what the agent is told is the protocol's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tasks.sources import endless, once
from toolwright.types import Task

DATA = Path(__file__).parent / "data"


def training(seed: int) -> Iterator[Task]:
    """ARPO's hard_search_1k, again and again."""
    return endless("hard_search", DATA / "hard_search_1k.parquet", seed)


def gaia(seed: int) -> Iterator[Task]:
    """The text-only questions; `seed` is the engine's, and changes nothing here nor below."""
    return once("gaia", DATA / "gaia.jsonl")


def hle(seed: int) -> Iterator[Task]:
    return once("hle", DATA / "hle.jsonl")


def webwalker(seed: int) -> Iterator[Task]:
    return once("webwalker", DATA / "webwalker.jsonl")


def xbench(seed: int) -> Iterator[Task]:
    return once("xbench", DATA / "xbench.jsonl")
