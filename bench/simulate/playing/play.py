"""Plays a schedule in a world of its own.

Invariant: equal schedules give equal histories, in every process (`PYTHONHASHSEED` fixed).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest import mock

import msgspec

import engine.core.engine_core
from bench.history.events import (
    AnyEvent,
    History,
    LifeEnded,
    Position,
)
from bench.history.events import Fault as FaultSeen
from bench.simulate.playing.one_run import Run
from bench.simulate.schedule import Schedule
from bench.simulate.virtual.loop import BEGIN, Stuck, VirtualLoop
from bench.simulate.virtual.world import Say, world
from bench.simulate.workload import make_policy, recipe
from engine.core.text.codec import HuggingFaceCodec
from toolwright.recipe import load_recipe

SHM = Path("/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The outcome of a schedule."""

    schedule: Schedule
    history: History
    digest: str
    """SHA-256 of the history."""
    seconds: float
    """Virtual."""
    notes: tuple[str, ...] = ()
    """Errors that a fault explains: lives of engine and learner that ended with a sentence."""
    errors: tuple[str, ...] = ()
    """Errors that nothing explains: a task that raised or does not end, an engine that ended by
    another error than its own."""
    counts: Counter[str] = field(default_factory=Counter)
    """Events by kind, faults by theirs, fates of positions."""


@contextmanager
def studio() -> Iterator[Studio]:
    """The parts that all schedules of a process share, in a folder that ends with it."""
    shm = SHM if SHM.is_dir() else None
    with TemporaryDirectory(prefix="simulate-", dir=shm) as folder:
        yield Studio(Path(folder))


class Studio:
    """A policy folder and its tokenizer, read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.policy = make_policy(folder / "policy")
        self._codec = HuggingFaceCodec(self.policy)
        self._abandoned: list[object] = []

    def play(self, schedule: Schedule, *, say: Say | None = None) -> Played:
        """The history of a schedule."""
        loop = VirtualLoop(Random(f"loop {schedule.seed}"))
        with (
            TemporaryDirectory(dir=self._folder) as folder,
            mock.patch.object(engine.core.engine_core, "build_codec", lambda *_: self._codec),
            world(loop, schedule.seed, say),
        ):
            # Relative names: no fingerprint and no prompt holds the folder's path.
            text = recipe(schedule.workload, policy=self.policy, folder=Path(folder))
            file = Path(folder) / "recipe.toml"
            file.write_text(text, encoding="utf-8")
            run = Run(schedule, loop, load_recipe(file), self.policy)
            try:
                loop.run_until_complete(run.play())
            except Stuck:  # its tasks must not be finalised inside another run
                self._abandoned += (loop, run)
                raise
            loop.close()
        data = msgspec.json.encode(run.history, enc_hook=list)
        return Played(
            schedule=schedule,
            history=run.history,
            digest=hashlib.sha256(data).hexdigest(),
            seconds=loop.now - BEGIN,
            notes=tuple(run.notes),
            errors=(*run.errors, *loop.complaints),
            counts=Counter(name for event in run.history for name in _named(event)),
        )


def _named(event: AnyEvent) -> Iterator[str]:
    yield type(event).__name__
    if isinstance(event, FaultSeen):
        yield f"fault {event.kind}"
    elif isinstance(event, Position):
        yield f"group {event.fate}"
    elif isinstance(event, LifeEnded) and event.killed:
        yield "kill"
