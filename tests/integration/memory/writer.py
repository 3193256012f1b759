"""A process that merges tools into a memory, and tells each version as it has it, so that whoever
kills it knows what was promised. It begins as a copy of one that has imported all this."""

from __future__ import annotations

import multiprocessing
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from memory import history
from memory.memory import Memory
from memory.search.embedding import hashing
from memory.store import Log
from memory.store.redis import RedisLog
from memory.store.sqlite import SqliteLog
from tests.support.tool_memory import registering, tool


def opened(store: str) -> Log:
    """store: a file, or redis://...#NAME."""
    if store.startswith("redis://"):
        url, _, name = store.partition("#")
        return RedisLog(url, name, embedder="hashing")
    return SqliteLog(Path(store), embedder="hashing")


def started(
    store: str, name: str, count: int, *, snapshots: bool = False
) -> tuple[BaseProcess, Connection]:
    """snapshots: one at every merge."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_write, args=(store, name, count, snapshots, there))
    process.start()
    there.close()
    return process, here


def no_more_writers() -> None:
    """Ends the process that writers are copies of: other tests count this one's children."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


def _write(store: str, name: str, count: int, snapshots: bool, told: Connection) -> None:
    if snapshots:
        history.due = lambda since, saved: True
    memory = Memory(opened(store), hashing)
    for number in range(count):
        made = tool(f"{name}_{number}", f"{name} number{number}")
        told.send(memory.merge_group(registering(made.name, made, delta=1)).version)
