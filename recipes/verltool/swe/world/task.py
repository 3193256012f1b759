"""The tasks: one for each repository, or for each cheat in it.

Every task ends with two lines that a script reads (agents.py): its repository, and who plays. A
model would read past them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from tasks.worlds.questions import question_task
from toolwright.types import Task

from .cheats import CHEATS
from .parts import CHEATING, HALFWAY, SOLVING
from .problems import Repository, problems
from .published import PUBLISHED


def training(seed: int) -> Iterator[Task]:
    """Endless. The demonstration trains nothing."""
    for problem in cycle(problems()):
        yield _task(problem, SOLVING)


def solving(seed: int) -> Iterator[Task]:
    return (_task(problem, SOLVING) for problem in problems())


def halfway(seed: int) -> Iterator[Task]:
    return (_task(problem, HALFWAY) for problem in problems())


def cheating(seed: int) -> Iterator[Task]:
    """Every cheat in every repository. The first ten are ten cheats in ten repositories."""
    every = list(CHEATS)
    for shift in range(len(every)):
        for place, problem in enumerate(problems()):
            yield _task(problem, CHEATING, every[(place + shift) % len(every)])


def published(seed: int) -> Iterator[Task]:
    """The project of a registry, for every agent."""
    yield _task(PUBLISHED, SOLVING)
    for cheat in CHEATS:
        yield _task(PUBLISHED, CHEATING, cheat)


def _task(problem: Repository, part: str, cheat: str = "") -> Task:
    who = f"{part}, {cheat}" if cheat else part
    text = f"{problem.issue}\n\nrepository: {problem.name}\n[played by: {who}]"
    told = {"repository": f"{problem.name}.tar", "verification": problem.name}
    id = f"{problem.name}, {cheat}" if cheat else problem.name
    return question_task(id, text, source=part, **told)
