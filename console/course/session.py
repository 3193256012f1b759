"""`toolwright run` from its first line to its exit code: folder, lock, signals, report.

Exit codes: 0 done; 1 a sentence says what failed; 2 recipe or arguments refused; 3, 4, 5 as the
learner's; 128 + the signal that asked for the end. The last line of a good run is the path of
summary.json.

The first Ctrl-C, SIGTERM or SIGHUP stops every process in order and lets each finish, a second one
(not within TOGETHER_S of the first) ends all at once. Without processes, a signal ends this one
(`machine.signals`).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from rich.console import Console

from console.asked import needs
from console.asked.plan import Maker, plan, unread
from console.asked.ports import settle
from console.asked.settings import settings_of
from console.asked.setup import Options, Setup, set_up, with_overrides
from console.course import leftovers
from console.course.course import Course, Ending
from console.course.lock import Held, only_console, unwritable
from console.course.look import Missing, look
from console.course.made import outdated, remake, there
from console.course.memory_page import write_memory_page
from console.course.notes import Notes
from console.errors import ConsoleError, NothingStarted, RecordBroken, Taken, fail
from console.machine.pids import pid_space
from console.machine.processes import Processes, created, die_with_us
from console.machine.ready import free_ports
from console.machine.signals import TOGETHER_S, heeded, leave, stopped_by
from console.machine.terminal import lasting_stdout
from console.machine.versions import everything
from console.record.changes import differences, listed
from console.record.course import LOGS, Began, CourseLog, CourseRecord, read_course
from console.record.files import MEMORY_PAGE, read_record
from console.record.types import Step
from console.report.writing import REPORT, SUMMARY, write
from console.track.beside import tracking
from console.verdict import FRUITLESS, why_nothing
from console.watch.screen import Screen
from toolwright.recipe import RecipeError


def run(options: Options, words: Sequence[str]) -> Ending:
    """One start of a run, which says itself how it ended. words: the command line, for the record.
    status: the exit code."""
    try:
        return _run(options, words, new_screen())
    except ConsoleError as error:
        ending = Ending(status=error.status, sentence=str(error))
    except RecipeError as error:
        ending = Ending(status=NothingStarted.status, sentence=str(error))
    fail(ending.sentence, ending.status)
    return ending


def new_screen() -> Screen:
    """On standard output."""
    return Screen(Console(file=lasting_stdout(), highlight=False, soft_wrap=True))


def planned(setup: Setup) -> tuple[Maker, ...]:
    """Makers that run first, in order. Raises NothingStarted for a path without a maker."""
    makers = needs.makers(setup.recipe, setup.table)
    goals = needs.goals(setup.recipe)
    return plan((*goals, *unread(makers, goals)), makers, there(setup.run, makers))


def is_done(setup: Setup, record: CourseRecord) -> bool:
    """Whether the last start ended well and there is no step to go; a run of no steps, which only
    evaluates, has none from the beginning. RecordBroken."""
    if record.ended is None or record.ended.status != 0 or not (setup.run / "final").is_dir():
        return False
    steps = _steps(setup.run)
    return (steps[-1].step if steps else 0) >= setup.steps


def _run(options: Options, words: Sequence[str], screen: Screen) -> Ending:
    setup = set_up(options)
    planned(setup)  # a missing file is reported before there is a folder
    folder = setup.run
    with only_console(folder) as held, ExitStack() as stack:
        record = read_course(folder)
        if is_done(setup, record):
            screen.say(f"{folder} has done its {setup.steps} steps; --steps N goes on with it")
            ending = Ending(status=0, sentence="")
            _report(folder, ending, screen)
            return ending
        _end_leftovers(record, screen)
        made = _steps_made(folder)
        _say_outdated(setup, made, screen, remake_=options.remake)
        services = settle(setup.recipe, setup.table, lambda: free_ports(1)[0])
        setup = with_overrides(setup, services.overrides)
        missing = asyncio.run(look(setup, services.services))
        try:
            setup.recipe.write_resolved("console", setup.table)
            log = stack.enter_context(CourseLog(folder))
            began = _began(setup, words, made)
            log.began(began)
            if made and (reason := _changed(record, began)):
                screen.say(reason)
        except OSError as error:
            raise ConsoleError(unwritable(folder, error)) from error
        notes = Notes(log, screen)
        try:
            ending = asyncio.run(_course(setup, missing, held, notes, screen))
            if ending.status == 0 and (reason := _nothing_learnt(setup)):
                ending = Ending(status=FRUITLESS, sentence=reason)
        except OSError as error:
            notes.ended(1, unwritable(folder, error))
            raise ConsoleError(unwritable(folder, error)) from error
        except ConsoleError as error:
            notes.ended(error.status, str(error))
            raise
        notes.ended(ending.status, ending.sentence)
        if ending.status > 128:
            screen.say(ending.sentence)
            return ending
        if ending.status:
            fail(ending.sentence, ending.status)
        if ending.status != Taken.status:
            if why := write_memory_page(setup.recipe, folder):
                screen.say(f"the page of the tool memory is not written: {why}")
            _report(folder, ending, screen)
        return ending


def _steps(run: Path) -> tuple[Step, ...]:
    """Those that it has made. RecordBroken."""
    try:
        return read_record(run).steps
    except OSError as error:
        raise RecordBroken(
            f"{error.filename or run} cannot be read ({error.strerror}): give this user rights "
            "there; the same command goes on"
        ) from error


def _steps_made(run: Path) -> int:
    """0 as well for a record that cannot be read, which the end of the start reports."""
    try:
        steps = _steps(run)
    except RecordBroken:
        return 0
    return steps[-1].step if steps else 0


def _end_leftovers(record: CourseRecord, screen: Screen) -> None:
    left = leftovers.left_running(record)
    if left:
        names = ", ".join(f"{process.name} ({process.pid})" for process in left)
        they = (
            "they are stopped first, and finish"
            if len(left) > 1
            else ("it is stopped first, and finishes")
        )
        screen.say(f"an earlier start was killed and left {names}: {they} what is in flight")
        leftovers.end(left, screen.say, told=die_with_us())


def _say_outdated(setup: Setup, made: int, screen: Screen, *, remake_: bool) -> None:
    """What is used though it was made from other settings; with `remake_` it is moved aside.

    Raises NothingStarted if training has begun with it, and ConsoleError."""
    makers = needs.makers(setup.recipe, setup.table)
    try:
        if remake_:
            for line in remake(setup, makers, made):
                screen.say(line)
        else:
            for one in outdated(setup, makers):
                screen.say(f"warning: {one.sentence}")
    except OSError as error:
        raise ConsoleError(unwritable(setup.run, error)) from error


def _changed(record: CourseRecord, began: Began) -> str:
    """What a resume does otherwise than the last start that noted its settings; "" for nothing."""
    before = next((start for start in reversed(record.starts) if start.settings), None)
    differs = differences(before.settings, began.settings) if before else []
    if not differs:
        return ""
    return (
        f"warning: the run goes on from step {began.step} with other settings than before: "
        f"{listed(differs)}; its curves have a mark there"
    )


def _began(setup: Setup, words: Sequence[str], step: int) -> Began:
    return Began(
        at=time.time(),
        pid=os.getpid(),
        created=created(os.getpid()),
        argv=list(words),
        recipe=str(setup.recipe.path),
        overrides=list(setup.overrides),
        versions=everything(),
        host=socket.gethostname(),
        cwd=os.getcwd(),
        space=pid_space(),
        settings=settings_of(setup),
        step=step,
    )


async def _course(
    setup: Setup, missing: Missing, held: Held, notes: Notes, screen: Screen
) -> Ending:
    """How the run ended; every process that was started here is gone then."""
    logs = setup.run / LOGS
    processes = Processes(logs, notes.process)
    with _Signals(processes, notes) as signals:
        try:
            # The trackers are not the run's processes: they have their last look after those.
            async with (
                tracking(
                    setup.run,
                    setup.table.track,
                    log=logs / "track.log",
                    say=notes.say,
                    hurried=processes.hurried,
                ),
                processes,
                _shown(screen),
            ):
                makers = planned(setup)
                course = Course(setup, missing, makers, held, processes, notes, screen.status)
                return await course.run()
        except asyncio.CancelledError:
            if signals.first is None:
                raise
        return Ending(status=128 + signals.first, sentence=stopped_by(signals.first))


@asynccontextmanager
async def _shown(screen: Screen) -> AsyncIterator[None]:
    task = asyncio.create_task(screen.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Signals:
    """The first signal cancels the work, the next takes the processes' grace away."""

    def __init__(self, processes: Processes, notes: Notes) -> None:
        self.first: int | None = None
        self._since = 0.0
        self._processes = processes
        self._notes = notes
        self._task = asyncio.current_task()

    def __enter__(self) -> _Signals:
        loop = asyncio.get_running_loop()
        self._heeded = heeded()
        for number in self._heeded:
            loop.add_signal_handler(number, self._on_signal, number)
        return self

    def __exit__(self, *_error: object) -> None:
        for number in self._heeded:
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, leave)

    def _on_signal(self, number: int) -> None:
        if self.first is not None:
            if time.monotonic() - self._since > TOGETHER_S:
                self._processes.hurry()
            return
        self.first, self._since = number, time.monotonic()
        learns = any(self._processes.runs(name) for name in leftovers.LEARNERS)
        first = (
            "the learner finishes its step and writes a checkpoint"
            if learns
            else ("what runs is told to end")
        )
        self._notes.say(f"stopping: {first}; a second Ctrl-C ends everything at once")
        if self._task is not None:
            self._task.cancel()


def _nothing_learnt(setup: Setup) -> str:
    """The sentence where no step had a group with a signal. RecordBroken."""
    return why_nothing(_steps(setup.run), planned=setup.steps)


def _report(run: Path, ending: Ending, screen: Screen) -> None:
    """Writes report and summary, and says where everything is."""
    report, summary = run / REPORT, run / SUMMARY
    try:
        paths = write((run,), report)
    except ConsoleError as error:
        raise ConsoleError(
            f"the training is over and its report is not written: {error}. Then say "
            f"{shlex.join(('toolwright', 'report', str(run)))}"
        ) from error
    for line in paths.lines:
        screen.say(line)
    if ending.status == 0:
        screen.say(f"policy:  {run / 'final'}")
    screen.say(f"report:  {report}")
    if (page := run / MEMORY_PAGE).is_file():
        screen.say(f"memory:  {page}")
    screen.say("summary:")
    screen.say(str(summary))
