"""The live view: on a terminal one panel; elsewhere a short plain line at every change of stage and
every ten seconds, and each doubt once, so that a log file stays readable."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from console.watch.status import Status, duration, fields, line, spark
from toolwright.page.text import plain

LIVE_S = 0.5
LINE_S = 10.0
WIDTH = 48


class Screen:
    """Shows a status until it is cancelled; `say` writes lines that stay."""

    def __init__(self, console: Console | None = None) -> None:
        self.status = Status()
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._began = time.monotonic()
        self._shown = ""
        self._doubted: set[str] = set()

    @property
    def elapsed(self) -> float:
        """Seconds of the run, where they are known, else since the screen was made."""
        ages = self.status.ages(time.time())
        return ages[1] if ages is not None else time.monotonic() - self._began

    def say(self, text: str | Text = "") -> None:
        """A line that stays."""
        self._console.print(plain(text) if isinstance(text, str) else text, markup=False)

    def stage(self, text: str) -> None:
        """Begins a stage, without the pace of the last one."""
        self.status.enter(text, time.time())
        self.status.forget_pace()
        if not self._console.is_terminal:
            self._say_line()

    async def run(self) -> None:
        """Until it is cancelled."""
        live = self._console.is_terminal
        with self._display(live) as display:
            said = time.monotonic()
            while True:
                await asyncio.sleep(LIVE_S)
                if isinstance(display, Live):
                    display.update(panel(self.status, time.time()), refresh=True)
                elif self.status.stage != self._shown or time.monotonic() - said >= LINE_S:
                    self._say_line()
                    said = time.monotonic()

    def _say_line(self) -> None:
        """The line of this moment, and each doubt once as long as it lasts."""
        self._shown = self.status.stage
        self.say(line(self.status, self.elapsed))
        for doubt in self.status.doubts:
            if doubt_kind(doubt) not in self._doubted:
                self.say(f"  warning: {doubt}")
        self._doubted = {doubt_kind(doubt) for doubt in self.status.doubts}

    def _display(self, live: bool) -> AbstractContextManager[Live | None]:
        if not live:
            return nullcontext()
        first = panel(self.status, time.time())
        return Live(first, console=self._console, auto_refresh=False, transient=True)


def doubt_kind(doubt: str) -> str:
    """A doubt without its numbers, which change with every step."""
    return re.sub(r"[0-9][0-9.,e+-]*", "#", doubt)


def panel(status: Status, now: float) -> Panel:
    """The whole view of this moment; now: unix seconds."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    if status.steps:
        done = ProgressBar(
            total=status.steps, completed=min(status.step, status.steps), width=WIDTH
        )
        grid.add_row("", done)
    for name, value in fields(status):
        also = f"  {spark(status.rewards)}" if name == "reward" else ""
        grid.add_row(Text(name, style="dim"), Text(value + also))
    for name, words in status.doing.items():
        grid.add_row(Text(name, style="dim"), Text(plain(words, ""), style="cyan"))
    for doubt in status.doubts:
        grid.add_row(Text("warning", style="bold yellow"), Text(plain(doubt, ""), style="yellow"))
    title = Text(plain(status.stage, ""))
    if (ages := status.ages(now)) is not None:
        title.append(f" · {duration(ages[0])}, the run {duration(ages[1])}")
    return Panel(grid, title=title, title_align="left", border_style="cyan", expand=False)
