"""SQLite databases in memory: found, bounded, sealed."""

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path

import pytest

from toolsvc.errors import Reason, Refused
from toolsvc.tools.sql.templates import Templates


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        with contextlib.closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection:
            connection.execute("CREATE TABLE t (x)")
            connection.execute("INSERT INTO t VALUES (zeroblob(40000))")
            connection.commit()
    return tmp_path


async def test_what_was_used_longest_ago_goes_first(folder: Path) -> None:
    size = (folder / "a.db").stat().st_size
    templates = Templates(folder, key="database", cache_bytes=2 * size)
    paths = [templates.find({"database": name}) for name in ("a", "b", "c")]
    a, b = [await templates.get(path) for path in paths[:2]]
    assert await templates.get(paths[0]) is a
    await templates.get(paths[2])
    assert templates.held_bytes == 2 * size
    assert await templates.get(paths[0]) is a
    again = await templates.get(paths[1])
    assert again is not b
    # Whoever held it can still read it.
    assert os.pread(b.fileno(), size, 0) == os.pread(again.fileno(), size, 0)


async def test_nobody_can_change_a_template(folder: Path) -> None:
    templates = Templates(folder, key="database", cache_bytes=1 << 20)
    template = await templates.get(folder / "a.db")
    with pytest.raises(PermissionError):
        os.pwrite(template.fileno(), b"x", 0)
    assert fcntl.fcntl(template, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SEAL


async def test_a_database_above_the_bound_is_refused(folder: Path) -> None:
    templates = Templates(folder, key="database", cache_bytes=1000)
    with pytest.raises(Refused, match=r"sql\.cache_mib") as failure:
        await templates.get(folder / "a.db")
    assert failure.value.reason is Reason.INVALID_REQUEST
    assert templates.held_bytes == 0


@pytest.mark.parametrize("name", ["d", "../a", "..", ".", "", None, 3, "/etc/passwd"])
def test_a_name_cannot_leave_the_folder(folder: Path, name: object) -> None:
    templates = Templates(folder, key="database", cache_bytes=1 << 20)
    with pytest.raises(Refused):
        templates.find({"database": name})
