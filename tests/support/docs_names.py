"""What the docs may name: commands, keys of the recipe, fields of learner.jsonl."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import typer
from pydantic import BaseModel

from agents.cli import app as agents
from agents.config import AgentsTable
from bench.cli import app as bench
from console.cli import app as toolwright
from console.config import ConsoleTable
from engine.cli import app as engine
from engine.config import EngineTable
from ingress.cli import app as ingress
from ingress.config import IngressTable
from learner.cli import app as learner
from learner.config.tables import LearnerTable
from memory.cli import app as memory
from tasks.cli import app as tasks
from tests.support.docs import DOCS
from toolsvc.cli import app as toolsvc
from toolwright.recipe import Policy, Run, Sampler, TaskTable, Tool

COMMANDS: dict[str, Any] = {
    "agents": typer.main.get_command(agents),
    "bench": typer.main.get_command(bench),
    "engine": typer.main.get_command(engine),
    "ingress": typer.main.get_command(ingress),
    "learner": typer.main.get_command(learner),
    "memory": typer.main.get_command(memory),
    "tasks": typer.main.get_command(tasks),
    "toolsvc": typer.main.get_command(toolsvc),
    "toolwright": typer.main.get_command(toolwright),
}
TABLES: dict[str, type[BaseModel]] = {
    "run": Run, "policy": Policy, "task": TaskTable, "sampler": Sampler, "tools": Tool,
    "agents": AgentsTable, "engine": EngineTable, "ingress": IngressTable,
    "learner": LearnerTable, "console": ConsoleTable,
}  # fmt: skip


def all_commands() -> Iterator[str]:
    """Each that does something, as it is typed: `engine eval run`."""

    def below(name: str, command: Any) -> Iterator[str]:
        if not hasattr(command, "commands"):
            yield name
        for word, inner in getattr(command, "commands", {}).items():
            yield from below(f"{name} {word}", inner)

    for name, command in COMMANDS.items():
        yield from below(name, command)


def has_key(path: str) -> bool:
    """Whether a recipe may have this key; `tools.NAME.key` has a name in its middle."""
    table, *names = path.split(".")
    if table == "tools":
        names = names[1:]
    model: Any = TABLES[table]
    for name in names:
        if model is None or name not in model.model_fields:
            return False
        model = _inner(model.model_fields[name].annotation)
    return True


def _inner(annotation: Any) -> Any:
    """The model that a field holds, alone, in a list or beside None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _inner(one))), None)


@cache
def learner_words() -> frozenset[str]:
    """Every text that stands in the learner's code: a field of learner.jsonl is one of them, or
    begins with one (`reward/NAME`)."""
    files = (DOCS.parent / "learner").rglob("*.py")
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in files)
    return frozenset(
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def is_learner_field(name: str) -> bool:
    """Whether the learner's code has the name; of one with a stroke what stands before it."""
    head, stroke, _ = name.partition("/")
    return (head + stroke if stroke else name) in learner_words() or name in learner_words()
