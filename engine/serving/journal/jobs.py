"""Jobs of the journal's thread, and the ways in which SQLite refuses."""

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
    """The disk is full: nothing was stored. A gRPC caller may retry."""

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
    """Work for the writer's thread."""

    work: Callable[[], Any]
    committed: Callable[[Any], None]
    future: Future[Any]
    writes: bool
    """Whether it runs in a transaction with the staged rows; otherwise it only reads."""
    frees: bool
    """Whether it makes room; on a full disk it then runs without the staged rows."""


def no_room(error: BaseException) -> bool:
    """Whether no page, log or log index could be written. Other trouble with the disk (a quota, an
    unreachable network folder) is awaited in the same way."""
    return code_of(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def code_of(error: BaseException) -> int:
    """SQLite's primary code; 0 for other errors."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
