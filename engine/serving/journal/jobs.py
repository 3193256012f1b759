"""What the journal's thread is asked to do, and the ways in which SQLite says no."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError


class JournalFull(ServiceError):
    """The disk is full: nothing was stored. Who asked over gRPC may ask again."""

    def __init__(self, file: Path) -> None:
        super().__init__(
            reasons.ERROR_REASON_DISK_FULL,
            f"no room for {file}",
            fix="free space on that disk; the run goes on by itself",
            retry_after=5.0,
        )


class JournalDamaged(EngineError):
    """The file was changed or lost pages while the engine used it."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work for the writer's thread.

    writes: in a transaction with what is staged; else it only reads. frees: it makes room, so on a
    full disk it runs without what is staged.
    """

    work: Callable[[], Any]
    committed: Callable[[Any], None]
    future: Future[Any]
    writes: bool
    frees: bool


def no_room(error: BaseException) -> bool:
    """No page, no log, or no index of the log could be written. Other trouble with the disk
    (a quota, a network folder that is away) is waited for likewise."""
    return code_of(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def code_of(error: BaseException) -> int:
    """SQLite's primary code; 0 for other errors."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
