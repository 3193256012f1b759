"""One start of `toolwright run` around its processes: what it ends with, and what is noted."""

from __future__ import annotations

import asyncio
import errno
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from console.asked.plan import Maker
from console.asked.setup import Options, set_up
from console.course import session
from console.course.commands import Commands
from console.course.course import Course, Ending
from console.course.lock import only_console
from console.course.look import Missing
from console.course.notes import Notes
from console.errors import ConsoleError
from console.machine.processes import Command, Processes
from console.record.course import COURSE, CourseLog, read_course
from console.record.types import Record
from console.watch.screen import Screen
from tests.support.recipes import to_toml
from tests.support.run_folders import lines, step

TABLES: dict[str, Any] = {
    "run": {
        "name": "own", "folder": "run", "steps": 1, "groups_per_step": 1, "group_size": 2,
        "engine": "127.0.0.1:9",
    },
    "policy": {"model": "policy"},
    "task": {"source": "task.py:questions", "reward": "./task.py:score"},
    "sampler": {"endpoints": ["http://127.0.0.1:9"]},
}  # fmt: skip


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    """Of a recipe whose processes come to a good end without having been."""

    async def looked(*_: Any) -> Missing:
        return Missing()

    async def trained(*_: Any) -> Ending:
        return Ending(status=0, sentence="")

    monkeypatch.setattr(session, "look", looked)
    monkeypatch.setattr(session, "_course", trained)
    (tmp_path / "policy").mkdir()
    (tmp_path / "task.py").touch()
    file = tmp_path / "recipe.toml"
    file.write_text(to_toml(TABLES), encoding="utf-8")
    return Options(recipe=file)


def test_one_step_that_taught_nothing_is_told_by_the_exit_code(
    options: Options, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    lines(run / "learner.jsonl", [step(1, groups_with_signal=0, worthless_steps=1)])
    assert session.run(options, []).status == 4
    ended = read_course(run).ended
    assert ended is not None and ended.status == 4


def test_a_record_that_cannot_be_read_is_noted_as_the_end(
    options: Options,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuses(folder: Path) -> Record:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder / "learner.jsonl"))

    monkeypatch.setattr(session, "read_record", refuses)
    assert session.run(options, []).status == 1
    ended = read_course(tmp_path / "run").ended
    assert ended is not None and ended.status == 1
    assert "learner.jsonl cannot be read (Permission denied)" in ended.sentence
    assert ended.sentence in capsys.readouterr().err


def test_a_folder_in_place_of_the_course_is_one_sentence(
    options: Options, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run" / COURSE).mkdir(parents=True)
    assert session.run(options, []).status == 1
    assert "course.jsonl cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "status"), [(3, 3), (5, 5), (7, 1)])
async def test_a_warm_up_ends_with_the_learners_own_status(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, status: int
) -> None:
    setup, run = set_up(options), tmp_path / "run"
    maker = Maker(kind="sft", name="sft", makes=run / "warm")
    says = f"import sys; print('learner: the loss is no number'); sys.exit({code})"
    command = Command(name="sft", argv=(sys.executable, "-c", says))
    monkeypatch.setattr(Commands, "maker", lambda self, maker: command)
    screen = Screen(Console(file=io.StringIO()))
    with only_console(run) as held, CourseLog(run) as log:
        notes = Notes(log, screen)
        async with Processes(run / "logs", notes.process) as processes:
            course = Course(setup, Missing(), (maker,), held, processes, notes, screen.status)
            monkeypatch.setattr(course, "_check", lambda: asyncio.sleep(0))
            with pytest.raises(ConsoleError, match="the loss is no number") as caught:
                await course.run()
    assert caught.value.status == status
