"""Brings a run folder's files to one tracker for as long as they grow.

Invariants
- A tracker that fails never ends anything: it is said once, and tried again after growing pauses
  from what was last kept. What came through meanwhile is said too.
- Each tracker has a thread of its own: one that hangs in its network delays no other.
- What was handed over is kept as handed over, so a later start goes on behind it.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from console.record.tail import Tail
from console.track.facts import is_over, results, settings
from console.track.points import FILES, point
from console.track.tracker import Destination, Memory, Tracker
from toolwright.process.backoff import Backoff
from toolwright.process.command_line import missing

POLL_S = 2.0
BACKOFF = Backoff(POLL_S, 120.0, jitter=False)
TRACKERS: Mapping[Destination, tuple[str, str, str]] = {
    "tensorboard": ("console.track.to_tensorboard", "TensorBoard", "console"),
    "wandb": ("console.track.to_wandb", "WeightsAndBiases", "wandb"),
    "mlflow": ("console.track.to_mlflow", "MLflow", "mlflow"),
}
"""Module, class, and the extra that installs what it imports."""


class Following:
    """One destination of one run folder. `failed`: not all of it arrived."""

    def __init__(self, run: Path, name: Destination, say: Callable[[str], None]) -> None:
        self.failed = False
        self._run = run
        self.name = name
        self._say = say
        self._memory = Memory(run, name)
        self._tracker: Tracker | None = None
        self._tails: dict[str, Tail] = {}
        self._told: Mapping[str, Any] = {}
        self._off = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"track-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Asks for a last look; `wait` tells when it is over."""
        self._ending.set()

    def wait(self, seconds: float) -> bool:
        """Whether the last look is over. A library that hangs does not end."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _follow(self) -> None:
        failures = 0
        while not self._off:
            # Asked before the look, so that a look follows the asking.
            ending = self._ending.is_set()
            failures = 0 if self._try(ending) else failures + 1
            if ending:
                return
            self._ending.wait(BACKOFF.pause(failures))

    def _try(self, ending: bool) -> bool:
        try:
            self._look()
            if ending and self._tracker is not None:
                self._tracker.finish(results(self._run), over=is_over(self._run))
        except ImportError as error:
            self._say(f"{self.name}: {missing(error.name or '', TRACKERS[self.name][2])}")
            self.failed = self._off = True
            return False
        except Exception as error:  # noqa: BLE001 (the libraries raise what they like)
            if not self.failed:
                words = " ".join(str(error).split())[:400]
                self._say(
                    f"{self.name}: {type(error).__name__}: {words}. The run goes on; this is "
                    "tried again and not said again"
                )
            self.failed = True
            self._tracker = None
            return False
        if self.failed:
            self._say(f"{self.name}: it works again, and nothing is missing")
        self.failed = False
        return True

    def _look(self) -> None:
        if self._tracker is None:
            self._tracker = self._open()
            self._tails = {
                stream: Tail(
                    self._run / file,
                    0 if stream in self._tracker.from_start else self._memory.places.get(stream, 0),
                )
                for stream, file in FILES.items()
            }
            self._told = {}
        for stream in FILES:
            tail = self._tails[stream]
            if rows := tail.read():
                self._tracker.write([p for row in rows if (p := point(stream, row)) is not None])
                self._memory.places[stream] = tail.place
                self._memory.keep()
        told = settings(self._run)
        if told != self._told:
            self._tracker.describe(told)
            self._told = told

    def _open(self) -> Tracker:
        module, name, _ = TRACKERS[self.name]
        tracker: Tracker = getattr(importlib.import_module(module), name)(self._run, self._memory)
        return tracker
