"""Progress of a run: a live bar on a terminal, plain lines elsewhere. Rank 0 only."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Reporter:
    """Progress of `steps` steps, `done` of them finished; a context manager.

    quiet: prints nothing (ranks other than the first).
    """

    def __init__(self, title: str, steps: int, done: int, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._steps = steps
        self._first = done
        self._started = time.monotonic()
        self._title = title
        self._bar: Progress | None = None
        if not quiet and sys.stdout.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=Console(),
            )
            self._task = self._bar.add_task(title, total=steps, completed=done, note="")

    def __enter__(self) -> Reporter:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Prints one line."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, flush=True)

    def step(self, done: int, note: str, *, line: bool = True) -> None:
        """Shows that `done` steps are finished. line: whether plain output gets a line for it."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.update(self._task, completed=done, note=note)
        elif line:
            passed = time.monotonic() - self._started
            left = passed / max(1, done - self._first) * (self._steps - done)
            print(f"{self._title} {done}/{self._steps}  {note}  {in_words(left)} left", flush=True)


def in_words(seconds: float) -> str:
    """Seconds below two minutes, else hours and minutes."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
