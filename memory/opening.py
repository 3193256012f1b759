"""Words of a recipe or a command line to a memory: where it lies."""

from __future__ import annotations

from pathlib import Path

from memory.errors import Unusable
from memory.store import Log, sqlite
from memory.store.sqlite import SqliteLog

REDIS = ("redis://", "rediss://", "unix://")
DEFAULT_NAME = "memory"
SQLITE = "memory.sqlite"
STORE_VARIABLE = "TOOLWRIGHT_MEMORY_STORE"
"""In the environment: the store, whose password a command line would show to everybody."""


def open_log(store: str, *, embedder: str, read_only: bool = False) -> Log:
    """The log at a file, at a folder (memory.sqlite in it), or at redis://HOST:PORT/DB#NAME.

    read_only: of a memory that is there; nothing is written, not even a snapshot. Unusable."""
    if not store:
        raise Unusable("no memory is named: give a file, or redis://HOST:PORT/DB#NAME")
    if store.startswith(REDIS):
        from memory.store.redis import RedisLog  # brings the package redis

        url, _, name = store.partition("#")
        return RedisLog(url, name or DEFAULT_NAME, embedder=embedder, read_only=read_only)
    return SqliteLog(_file(store), embedder=embedder, read_only=read_only)


def begun_with(store: str) -> str:
    """The embedder that a memory was begun with. Unusable where none is there."""
    if found := begun(store):
        return found
    raise Unusable(f"there is no memory at {shown(store)}: name the store of `memory serve`")


def begun(store: str) -> str:
    """The embedder that a memory was begun with, "" where nothing is. Unusable where it cannot be
    read, or is something else."""
    if store.startswith(REDIS):
        from memory.store import redis  # brings the package redis

        url, _, name = store.partition("#")
        return redis.begun(url, name or DEFAULT_NAME)
    return sqlite.begun(_file(store))


def _file(store: str) -> Path:
    if "://" in store:
        raise Unusable(f"{shown(store)} is no store: give a file, or redis://HOST:PORT/DB#NAME")
    path = Path(store)
    return path / SQLITE if path.is_dir() else path


def shown(store: str) -> str:
    """The store without its password, also where the address is none that can be read."""
    scheme, is_address, rest = store.partition("://")
    if not is_address:
        return store
    where, sharp, name = rest.rpartition("@")[2].partition("#")
    return f"{scheme}://{where.partition('?')[0]}{sharp}{name}"
