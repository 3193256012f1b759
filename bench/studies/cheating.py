"""Plays a cheat in a box of the `swe` tool, and pays it by several verdicts.

Repositories and cheats are those of the recipe `verltool/swe`. A verdict has a place for the tests
and a way in which they reach the code.

Invariants
- All verdicts see the same cheat, hidden tests, command, and reader of the log.
- A verdict in the agent's own box runs the tests in a login shell, as published evaluation scripts
  do.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolsvc.host.host import Host
from toolsvc.tools.swe.verifying.logs.statuses import PASSED
from toolsvc.tools.swe.verifying.report import read_report
from toolsvc.types import CallRequest, OpenRequest, Recorded, Result, Text
from toolwright.imports import load_file
from toolwright.process.packaged import packaged

RECIPE = packaged("recipes") / "verltool/swe"
FIX, NOTHING = "the recorded fix", "nothing"
"""Controls: every verdict should pay the fix, and no verdict an untouched repository."""
ENDLESS = "never ends"
LIMIT_S, ENDLESS_LIMIT_S = 40, 5
"""Time of the tests, and of those of the cheat that never ends, in seconds."""
PLACES = ("fresh box", "own box, tests copied in", "own box, tests there")
WAYS = ("a process of its own", "imports the code")
IMPORTS = '''\
"""The value of an expression about a module, in the process of the tests."""

import json
import sys
import traceback
from subprocess import CalledProcessError


def value_of(module: str, expression: str) -> object:
    names: dict[str, object] = {}
    try:
        exec(f"from {module} import *", names)
        return json.loads(json.dumps(eval(expression, names)))
    except Exception as error:
        raise CalledProcessError(1, sys.executable, stderr=traceback.format_exc()) from error
'''
"""tests/outside.py for tests that import the code."""

_numbers = itertools.count()


def world(name: str) -> Any:
    """A module of the recipe's world."""
    return load_file(RECIPE / f"world/{name}.py")


def write_world(folder: Path) -> None:
    """Repositories, and verifications by `verification_name`."""
    build, problems = world("build"), world("problems").problems()
    for problem in problems:
        package = world("problems").SourceFile(path="tests/__init__.py", text="")
        archive = folder / "repositories" / f"{problem.name}.tar"
        build.write_repository(archive, (*problem.before, package))
        for way in WAYS:
            for cheat in (FIX, ENDLESS):
                own = folder / "verifications" / verification_name(problem, way, cheat)
                build.write_verification(own, problem)
                settings = (own / "verification.toml").read_text(encoding="utf-8")
                old, new = f"seconds = {build.SECONDS}\n", f"seconds = {limit_of(cheat)}\n"
                assert old in settings
                changed = settings.replace(old, new)
                (own / "verification.toml").write_text(changed, encoding="utf-8")
                if way == WAYS[1]:
                    (own / "files/tests/outside.py").write_text(IMPORTS, encoding="utf-8")


def verification_name(problem: Any, way: str, cheat: str) -> str:
    """Name of a verification's folder."""
    return f"{problem.name}-{WAYS.index(way)}-{limit_of(cheat)}"


def limit_of(cheat: str) -> int:
    """Time of the tests, in seconds."""
    return ENDLESS_LIMIT_S if cheat == ENDLESS else LIMIT_S


async def play(host: Host, folder: Path, problem: Any, cheat: str) -> list[dict[str, Any]]:
    """A row for each verdict: whether it paid, by the log and by the exit code (None in a fresh
    box, which reads the log alone). folder: as `write_world` made it."""
    rows = []
    for way in WAYS:
        name = verification_name(problem, way, cheat)
        result = await _fresh(host, problem, cheat, name)
        rows.append(_row(problem, cheat, PLACES[0], way, result.reward == 1.0, None))
        files = _copies(folder / "verifications" / name / "files")
        for place in PLACES[1:]:
            there = place == PLACES[2]
            session = await _opened(host, {"repository": f"{problem.name}.tar"})
            if there:
                await session.shell(files)
            for action in _actions(problem, cheat):
                await session.act(action)
            if not there:
                await session.shell(files)
            log, code = await session.tested(_command(problem), limit_of(cheat))
            await session.close()
            rows.append(_row(problem, cheat, place, way, passed(problem, log), code == 0))
    return rows


def passed(problem: Any, log: str) -> bool:
    """Whether a log of unittest has all hidden tests as passed."""
    statuses = read_report("unittest", log)
    return all(
        statuses.get(test) == PASSED for test in (*problem.fail_to_pass, *problem.pass_to_pass)
    )


def _row(
    problem: Any, cheat: str, place: str, way: str, log: bool, code: bool | None
) -> dict[str, Any]:
    return {
        "repository": problem.name, "cheat": cheat, "place": place, "way": way,
        "paid_by_log": log, "paid_by_exit": code,
    }  # fmt: skip


def _actions(problem: Any, cheat: str) -> Sequence[str]:
    """The agent's messages, without its submission."""
    if cheat == NOTHING:
        return ()
    parts = world("parts")
    said = (
        parts.messages(parts.SOLVING, "", problem)
        if cheat == FIX
        else parts.messages(parts.CHEATING, cheat, problem)
    )
    return tuple(said[:-1])


def _command(problem: Any) -> str:
    modules = sorted({test.rsplit(".", 2)[0] for test in problem.fail_to_pass})
    return " ".join((world("problems").TESTS, *modules))


def _copies(files: Path) -> str:
    """A command that writes the hidden tests into the repository."""
    lines = []
    for file in sorted(path for path in files.rglob("*") if path.is_file()):
        path = file.relative_to(files)
        held = base64.b64encode(file.read_bytes()).decode()
        lines.append(f"mkdir -p {path.parent}; echo {held} | base64 -d > {path}")
    return "\n".join(lines)


async def _fresh(host: Host, problem: Any, cheat: str, verification: str) -> Result:
    """The result of a submission."""
    task = {"repository": f"{problem.name}.tar", "verification": verification}
    session = await _opened(host, task)
    for action in _actions(problem, cheat):
        await session.act(action)
    result = await session.act(world("parts").SUBMIT)
    await session.close()
    return result


async def _opened(host: Host, metadata: Mapping[str, Any]) -> _Session:
    session = _Session(host, f"cheat-{next(_numbers)}")
    await session.open(metadata)
    return session


class _Session:
    """One trajectory's calls to a host in this process."""

    def __init__(self, host: Host, name: str) -> None:
        self._host, self._name = host, name

    async def open(self, metadata: Mapping[str, Any]) -> None:
        await self._host.open(
            OpenRequest(
                session_id=self._name, owner="study", lease=600.0, tools=(), metadata=metadata,
                queue_limit=120.0, digest=self._name.encode(),
            )
        )  # fmt: skip

    async def act(self, action: str, limit: float = 60.0) -> Result:
        call = f"call-{next(_numbers)}"
        request = CallRequest(
            session_id=self._name, call_id=call, tool="swe", action=action, arguments=None, turn=0,
            turns_left=3, last_step=False, queue_limit=120.0, run_limit=limit, wait=30.0,
            metadata={}, digest=call.encode(),
        )  # fmt: skip
        while not isinstance(found := await self._host.call(request), Recorded):
            pass  # It runs: its limits end it.
        return found.result

    async def shell(self, command: str, limit: float = 60.0) -> Result:
        written: str = load_file(RECIPE / "protocol.py").written_call(
            "execute_bash", {"command": command}
        )
        return await self.act(written, limit)

    async def tested(self, command: str, limit: float) -> tuple[str, int | None]:
        """(log, exit code) of the tests; no code if they did not end."""
        result = await self.shell(f"bash -lc '{command}' 2>&1", limit)
        log = "".join(part.text for part in result.observation if isinstance(part, Text))
        code = result.metrics.get("exit_code") if result.error is None else None
        return log, None if code is None else int(code)

    async def close(self) -> None:
        await self._host.close(self._name)
