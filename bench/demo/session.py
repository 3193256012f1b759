"""One demonstration from the command line: its folder, signals, and what is printed at the end.

Ctrl-C or SIGTERM stops every process in order, a second one at once. The last line of a good run
is the path of summary.json.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import typer
from rich.text import Text

from bench.demo.commands import Commands, Overrides
from bench.demo.course import Course, Options
from bench.demo.progress import Screen, duration
from bench.demo.report import write_report
from bench.demo.subject import ROOT
from bench.demo.summary import table, write_summary
from bench.demo.transcript import as_text, before_and_after
from bench.demo.types import Outcome
from bench.errors import BenchError
from bench.processes import Processes

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """A signal asked for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def demonstrate(
    word: str,
    commands: Commands,
    *,
    folder: Path | None,
    seeds: int,
    control: bool,
    overrides: Overrides,
) -> None:
    """Runs it whole, in a new folder. `word` is what the user called; typer.Exit where it fails."""
    home = (folder or ROOT / "runs" / f"{datetime.now():%Y%m%d-%H%M%S}-{word}").resolve()
    options = Options(
        commands=commands,
        folder=home,
        seeds=tuple(range(1, seeds + 1)),
        control=control,
        overrides=overrides,
    )
    screen = Screen()
    try:
        home.mkdir(parents=True)
        outcome = asyncio.run(_demonstrate(options, screen))
        show(outcome, home, screen)
    except FileExistsError:
        fail(word, f"{home} exists already: name a new folder")
    except Stopped as stopped:
        print(f"{word}: stopped by {stopped}; no process is left, the logs are in {home}/logs")
        raise typer.Exit(stopped.exit_code) from None
    except BenchError as error:
        fail(word, str(error))


async def _demonstrate(options: Options, screen: Screen) -> Outcome:
    processes = Processes(options.folder / "logs")
    with _Signals(processes, screen) as signals:
        try:
            async with processes:
                shown = asyncio.create_task(screen.run())
                try:
                    return await Course(options, processes, screen).run()
                finally:
                    shown.cancel()
                    await asyncio.gather(shown, return_exceptions=True)
        except asyncio.CancelledError:
            if signals.first is None:
                raise
            raise Stopped(signals.first) from None


class _Signals:
    """The first signal cancels the work, the next takes the processes' grace away."""

    def __init__(self, processes: Processes, screen: Screen) -> None:
        self.first: int | None = None
        self._processes = processes
        self._screen = screen
        self._task = asyncio.current_task()

    def __enter__(self) -> _Signals:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        return self

    def __exit__(self, *_error: object) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    def _on_signal(self, number: int) -> None:
        if self.first is not None:
            self._processes.hurry()
            return
        self.first = number
        self._screen.say("stopping every process ...")
        if self._task is not None:
            self._task.cancel()


def show(outcome: Outcome, home: Path, screen: Screen) -> None:
    """Writes summary and report; prints samples, figures and paths, summary.json's path last."""
    report, summary = home / "report.html", home / "summary.json"
    write_summary(outcome, summary)
    write_report(outcome, report)
    for title, samples in zip(
        ("before, after the warm-up", f"after {outcome.runs[0].last_step} steps"),
        before_and_after(outcome.runs[0], outcome.subject.main.name),
        strict=True,
    ):
        screen.say(Text(f"\n{title}", style="bold"))
        for sample in samples:
            screen.say(as_text(sample))
    screen.say()
    for line in table(outcome):
        screen.say(line)
    screen.say(
        f"\n{duration(outcome.seconds['total'])}, at most {outcome.peak_memory / 2**30:.2f} GiB "
        "(sum of PSS over all processes); every process is stopped"
    )
    for run in outcome.runs:
        screen.say(f"policy:  {home / f'seed-{run.seed}' / 'run/final'}")
    screen.say(f"report:  {report}")
    screen.say("summary:")
    screen.say(str(summary))


def overrides_of(assignments: list[str] | None, steps: int | None) -> Overrides:
    """What `--set` and `--steps` said. BadParameter for what is no assignment."""
    given = dict(_assignment(text) for text in assignments or ())
    return {**given, **({} if steps is None else {"run.steps": steps})}


def fail(word: str, message: str) -> NoReturn:
    print(f"{word}: {message}", file=sys.stderr)
    raise typer.Exit(1)


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise typer.BadParameter(f"{text!r}: write it as table.key=value")
    return key, value
