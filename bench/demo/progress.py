"""What a person sees while the demonstration runs.

On a terminal one live panel; elsewhere a plain line at every change of stage and every ten
seconds, so that a log file stays readable. `line` and `seconds_left` are pure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

LIVE_S = 0.5
LINE_S = 10.0
RECENT = 20  # steps that the pace is taken from


@dataclass(slots=True, kw_only=True)
class Status:
    """Where the demonstration is; whoever knows a value writes it."""

    stage: str = "starting"
    step: int = 0
    steps: int = 0
    reward: float | None = None
    success: float | None = None
    success_step: int = 0
    tokens_per_second: float | None = None
    staleness: float | None = None
    left_s: float | None = None
    memory: int = 0
    recent: list[float] = field(default_factory=list)


def fields(status: Status) -> list[tuple[str, str]]:
    """(name, value) of what is known now."""
    found = []
    if status.steps:
        found.append(("step", f"{status.step}/{status.steps}"))
    if status.reward is not None:
        found.append(("reward", f"{status.reward:.2f}"))
    if status.success is not None:
        found.append(("success", f"{status.success:.2f} (held out, step {status.success_step})"))
    if status.tokens_per_second is not None:
        found.append(("tokens/s", f"{status.tokens_per_second:,.0f}"))
    if status.staleness is not None:
        found.append(("staleness", f"{status.staleness:.2f}"))
    if status.memory:
        found.append(("memory", f"{status.memory / 2**30:.1f} GiB"))
    if status.left_s is not None:
        found.append(("left", f"about {duration(status.left_s)}"))
    return found


def line(status: Status, elapsed: float) -> str:
    """The same in one line."""
    words = [f"{name} {value}" for name, value in fields(status)]
    return f"[{elapsed:5.0f} s] " + ", ".join([status.stage, *words])


def seconds_left(stamps: list[float], remaining: int, afterwards: float) -> float | None:
    """From the times at which the last steps ended; None before there are two."""
    recent = stamps[-RECENT:]
    if len(recent) < 2:
        return None
    return (recent[-1] - recent[0]) / (len(recent) - 1) * remaining + afterwards


def duration(seconds: float) -> str:
    """40 s, 3 min, 1 h 5 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def spark(values: Iterable[float]) -> str:
    """Values from 0 to 1 as a row of blocks."""
    blocks = "▁▂▃▄▅▆▇█"
    return "".join(blocks[min(7, max(0, int(value * 8)))] for value in values)


class Screen:
    """Shows a status until it is cancelled; `say` writes lines that stay."""

    def __init__(self, console: Console | None = None) -> None:
        self.status = Status()
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._began = time.monotonic()
        self._spoken = ""

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str | Text = "") -> None:
        self._console.print(text)

    def stage(self, name: str, steps: int = 0) -> None:
        """A new stage begins; what was known of the last one is forgotten."""
        memory = self.status.memory
        self.status = Status(stage=name, steps=steps, memory=memory)
        if not self._console.is_terminal:
            self.say(line(self.status, self.elapsed))

    async def run(self) -> None:
        live = self._console.is_terminal
        with self._display(live) as display:
            while True:
                await asyncio.sleep(LIVE_S if live else LINE_S)
                if isinstance(display, Live):
                    display.update(self._panel())
                else:
                    self.say(line(self.status, self.elapsed))

    def _display(self, live: bool) -> AbstractContextManager[Live | None]:
        if not live:
            return nullcontext()
        return Live(self._panel(), console=self._console, auto_refresh=False, transient=True)

    def _panel(self) -> Panel:
        status = self.status
        grid = Table.grid(padding=(0, 2))
        for name, value in fields(status):
            grid.add_row(Text(name, style="dim"), value)
        if status.recent:
            grid.add_row(Text("rewards", style="dim"), spark(status.recent[-48:]))
        if status.steps:
            bar = ProgressBar(total=status.steps, completed=status.step, width=48)
            grid.add_row("", bar)
        title = f"{status.stage} · {duration(self.elapsed)}"
        return Panel(grid, title=title, title_align="left", border_style="cyan", expand=False)
