"""Opens the store of a memory from its address in a recipe or on a command line."""

from __future__ import annotations

from pathlib import Path

from memory.errors import Unusable
from memory.store import Log, sqlite
from memory.store.sqlite import SqliteLog

REDIS = ("redis://", "rediss://", "unix://")
DEFAULT_NAME = "memory"
SQLITE = "memory.sqlite"
STORE_VARIABLE = "TOOLWRIGHT_MEMORY_STORE"
"""Environment variable with the store's address: a command line would show its password to every
user."""


def open_log(store: str, *, embedder: str, read_only: bool = False) -> Log:
    """The log at a file, at a folder (memory.sqlite in it), or at redis://HOST:PORT/DB#NAME.

    read_only: of a memory that is there; nothing is written, not even a snapshot. Raises
    Unusable."""
    if not store:
        raise Unusable("no memory is named: give a file, or redis://HOST:PORT/DB#NAME")
    if store.startswith(REDIS):
        from memory.store.redis import RedisLog  # brings the package redis

        url, _, name = store.partition("#")
        return RedisLog(url, name or DEFAULT_NAME, embedder=embedder, read_only=read_only)
    return SqliteLog(_file(store), embedder=embedder, read_only=read_only)


def begun_with(store: str) -> str:
    """The embedder that a memory was begun with. Raises Unusable if none is there."""
    if found := begun(store):
        return found
    raise Unusable(f"there is no memory at {shown(store)}: name the store of `memory serve`")


def begun(store: str) -> str:
    """The embedder that a memory was begun with, "" where nothing is. Raises Unusable if it cannot
    be read, or is something else."""
    if store.startswith(REDIS):
        from memory.store import redis  # brings the package redis

        url, _, name = store.partition("#")
        return redis.begun(url, name or DEFAULT_NAME)
    return sqlite.begun(_file(store))


def _file(store: str) -> Path:
    if "://" in store:
        raise Unusable(f"{shown(store)} is not a store: give a file, or redis://HOST:PORT/DB#NAME")
    path = Path(store)
    return path / SQLITE if path.is_dir() else path


def shown(store: str) -> str:
    """The store's address without its password; works for an invalid address too."""
    scheme, is_address, rest = store.partition("://")
    if not is_address:
        return store
    where, sharp, name = rest.rpartition("@")[2].partition("#")
    return f"{scheme}://{where.partition('?')[0]}{sharp}{name}"
