"""What the scripted agents say: whole conversations, message by message; pure.

    solving      reads, runs the tests, makes the recorded fix, runs them again, submits
    halfway      the same in every other repository; in the others it fails as policies do
    cheating     one of cheats.py, then submits

No agent decides anything here. They show what engine, tool and verification make of an agent
that does well, of one that fails, and of one that cheats; they say nothing about a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..protocol import written_call
from .cheats import CHEATS
from .problems import TESTS, Repository, problems

SUBMIT = written_call("submit", {})
HALFWAY, SOLVING, CHEATING = "halfway", "solving", "cheating"
_ENDLESS = 400
"""Repetitions that are longer than the demonstration's limit of an action."""


def messages(part: str, cheat: str, problem: Repository) -> list[str]:
    """All that an agent says about a problem; it repeats its last message for ever. Raises
    ValueError for an unknown part."""
    if part == SOLVING:
        return _solves(problem)
    if part == HALFWAY:
        return _halfway(problem)
    if part == CHEATING and cheat in CHEATS:
        return [_runs("There is a shorter way.", CHEATS[cheat](problem)), SUBMIT]
    raise ValueError(f"no part {part!r} {cheat!r}")


def _runs(thought: str, command: str) -> str:
    return f"{thought}\n{written_call('execute_bash', {'command': command})}"


def _looks(path: str) -> str:
    return written_call("file_editor", {"command": "view", "path": path})


def _solves(problem: Repository) -> list[str]:
    return [
        f"First I look at what is there.\n{_looks('.')}",
        f"The issue is about {problem.module}.\n{_looks(problem.module)}",
        _runs("Do its tests pass?", f"{TESTS} 2>&1 | tail -n 3"),
        *(f"This is the cause.\n{edit}" for edit in problem.solution),
        _runs("And now?", f"{TESTS} 2>&1 | tail -n 3; git diff --stat"),
        f"The issue is gone.\n{SUBMIT}",
    ]


def _halfway(problem: Repository) -> list[str]:
    place = [one.name for one in problems()].index(problem.name)
    if place % 2 == 0:
        return _solves(problem)
    failing = list(FAILS.values())[place // 2 % len(FAILS)]
    return failing(problem)


FAILS: Mapping[str, Callable[[Repository], list[str]]] = {
    "submits what it found": lambda problem: [_looks(problem.module), SUBMIT],
    "never submits": lambda problem: [_looks(problem.module), "It should work now."],
    "calls nothing that there is": lambda problem: ["<function=>" * 20 + "</function>"],
    "waits too long": lambda problem: [_runs("I wait.", "sleep 600"), SUBMIT],
    "writes without an end": lambda problem: ["and then I thought again, " * _ENDLESS],
}
"""How the second one fails."""
