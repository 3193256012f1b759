"""Recipes as a user writes them, TOML files, and the files of those that ship."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolwright.imports import load_file

ONE = {"steps": 1, "groups_per_step": 1, "group_size": 1}
PAIR = {**ONE, "group_size": 2}
"""[run] of one trajectory, and of one group of two."""


Part = Callable[[str], Any]


def part_of(folder: Path) -> Part:
    """Takes a name of a file, "protocol.AutoAgent" or "world/task.easy", and gives what the engine
    would load."""

    def found(path: str) -> Any:
        file, _, name = path.partition(".")
        return getattr(load_file(folder / f"{file}.py"), name)

    return found


def to_toml(tables: Mapping[str, Any]) -> str:
    """One [table] a key; inside a table, tables and lists are written inline."""
    lines = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {inline(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {inline(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    if isinstance(value, Path):
        return json.dumps(str(value))
    return json.dumps(value)


def merged(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`tables` with the keys of `changes`, merged table by table; None takes a table away."""
    out = dict(tables)
    for key, value in changes.items():
        old = out.get(key)
        if value is None:
            out.pop(key, None)
        elif isinstance(old, Mapping) and isinstance(value, Mapping):
            out[key] = merged(old, value)
        else:
            out[key] = value
    return out


def recipe_tables(
    *, policy: Path, sampler: str, tools: Mapping[str, str], engine: str
) -> dict[str, Any]:
    """The tables of a small run; `tools` maps names to addresses."""
    return {
        "run": {
            "name": "test",
            "folder": "run",
            "steps": 4,
            "groups_per_step": 2,
            "group_size": 2,
            "engine": engine,
        },
        "policy": {"model": policy},
        "task": {"source": "task.py:training", "reward": "./my_reward.py:score"},
        "sampler": {"endpoints": [sampler], "timeout_s": 10.0},
        "tools": {name: {"service": address} for name, address in tools.items()},
        "engine": {"drain_s": 10.0},
    }


TASK_FILE = """
from itertools import count
from toolwright.types import Task


def training(seed):
    for number in count():
        yield Task(
            id=f"t{number}",
            messages=({"role": "user", "content": f"what is {number}+1?"},),
            answers=(str(number + 1),),
            metadata={"number": number},
        )


def short(seed):
    yield from (task for task, _ in zip(training(seed), range(3)))
"""
REWARD_FILE = '''
def score(trajectory):
    """1 for `<answer> 2</answer>`."""
    return {"correct": float("<answer> 2</answer>" in trajectory.metadata["final_text"])}
'''


def write_recipe(folder: Path, tables: Mapping[str, Any]) -> Path:
    """recipe.toml with its task.py and my_reward.py beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("task.py", TASK_FILE), ("my_reward.py", REWARD_FILE)):
        if not (folder / name).exists():
            (folder / name).write_text(text, encoding="utf-8")
    file = folder / "recipe.toml"
    file.write_text(to_toml(tables), encoding="utf-8")
    return file
