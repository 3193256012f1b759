"""`python -m bench.demo`: the command line, signals and what is printed at the end.

Ctrl-C or SIGTERM stops every process in order, a second one at once. The last line of a good run
is the path of summary.json.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from bench.demo.commands import ROOT
from bench.demo.course import Course, Options
from bench.demo.progress import Screen, duration
from bench.demo.report import write_report
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


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def demo(
    seeds: Annotated[int, typer.Option(min=1, help="runs, with seeds 1, 2, ...")] = 1,
    control: Annotated[bool, typer.Option("--control", help="and one with rate 0")] = False,
    steps: Annotated[int | None, typer.Option(min=1, help="training steps; the recipe's")] = None,
    folder: Annotated[Path | None, typer.Option(help="new folder; runs/<time>-demo")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.KEY=VALUE", help="replaces a value of the recipe"),
    ] = None,
) -> None:
    """Train the calculator agent from nothing, with every process real, and write a report."""
    home = (folder or ROOT / "runs" / f"{datetime.now():%Y%m%d-%H%M%S}-demo").resolve()
    options = Options(
        folder=home,
        seeds=tuple(range(1, seeds + 1)),
        control=control,
        overrides={
            **dict(_assignment(text) for text in set_ or ()),
            **({} if steps is None else {"run.steps": steps}),
        },
    )
    screen = Screen()
    try:
        home.mkdir(parents=True)
        outcome = asyncio.run(_demonstrate(options, screen))
        show(outcome, home, screen)
    except FileExistsError:
        _fail(f"{home} exists already: name a new folder")
    except Stopped as stopped:
        print(f"demo: stopped by {stopped}; no process is left, the logs are in {home}/logs")
        raise typer.Exit(stopped.exit_code) from None
    except BenchError as error:
        _fail(str(error))


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
        before_and_after(outcome.runs[0]),
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


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise typer.BadParameter(f"{text!r}: write it as table.key=value")
    return key, value


def _fail(message: str) -> None:
    print(f"demo: {message}", file=sys.stderr)
    raise typer.Exit(1)


if __name__ == "__main__":
    app()
