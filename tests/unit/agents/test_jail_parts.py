"""Parts of an agent's jail: named files, addresses, and a jail that locks nothing in."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agents.errors import StartError
from agents.jail import jail, selftest
from agents.jail.jail import Jail
from agents.jail.named_files import check_names, moved
from agents.kinds.kept import address_of
from agents.work_folder import base_folder, result_bytes, work_folder
from toolwright.jail.view import own_account
from toolwright.types import Task

pytestmark = pytest.mark.quick


def test_files_that_a_jail_hides_are_copied(tmp_path: Path) -> None:
    recipe, shown, own = (tmp_path / name for name in ("recipe", "shown", "own"))
    for folder in (recipe, shown, own):
        folder.mkdir()
        (folder / "agent.py").write_text(folder.name, encoding="utf-8")
    words = ["/usr/bin/env", f"{recipe}/agent.py", f"{shown}/agent.py", "--fast", str(recipe)]
    found = moved(words, (str(shown),), own)
    assert found == [words[0], f"{own}/agent.py", words[2], "--fast", str(recipe)]
    assert (own / "agent.py").read_text(encoding="utf-8") == "recipe"
    assert moved([f"{recipe}/agent.py:play"], (), own) == [f"{own}/agent.py:play"]
    check_names([*words, f"{recipe}/agent.py"], (str(shown),))
    with pytest.raises(StartError, match=r"recipe/agent\.py and .*/agent\.py are copied to one"):
        check_names(words, ())


@pytest.mark.parametrize("name", ["task.json", "result.json"])
def test_a_copy_replaces_no_file_of_the_protocol(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(StartError, match=f"has a {name} of its own: rename the file"):
        check_names(["/usr/bin/env", str(tmp_path / name)], ())


def test_an_ingress_is_a_plain_url() -> None:
    assert address_of("http://127.0.0.1:50081") == ("127.0.0.1", 50081)
    assert address_of("http://[::1]:1") == ("::1", 1)
    for url in ("127.0.0.1:50081", "https://a:1", "http://a"):
        with pytest.raises(StartError, match="write the ingress as"):
            address_of(url)


async def test_a_jail_that_locks_nothing_in_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = jail.FIRST.replace("os.kill(-1, signal.SIGKILL)", "pass")  # it would be this machine
    assert first != jail.FIRST
    words = [sys.executable, "-I", "-S", "-c", first]
    monkeypatch.setattr(Jail, "words", lambda _jail, _own: words)
    bare = Jail(kind="bwrap", program="bwrap", account=own_account(), folders=())
    with pytest.raises(StartError, match="no pid namespace of its own"):
        await selftest.examine(bare, tmp_path, tmp_path / "run")
    shows_the_run = replace(bare, folders=(str(tmp_path),))
    with pytest.raises(StartError, match="agents would see the run"):
        await selftest.examine(shows_the_run, tmp_path, tmp_path / "run")


def test_bait_is_what_no_shown_folder_needs(tmp_path: Path) -> None:
    for name in ("a.py", "venv", "run"):
        (tmp_path / name).mkdir()
    (tmp_path / "venv" / "bin").mkdir()
    found = selftest.unseen(tmp_path, [str(tmp_path / "venv" / "bin")])
    assert found == [str(tmp_path / "a.py"), str(tmp_path / "run")]
    assert selftest.unseen(tmp_path, [str(tmp_path)]) == []
    assert selftest.unseen(tmp_path / "none", []) == []


def test_only_a_plain_result_file_is_read(tmp_path: Path) -> None:
    assert result_bytes(tmp_path) is None
    (tmp_path / "secret").write_text("s", encoding="utf-8")
    (tmp_path / "result.json").symlink_to(tmp_path / "secret")
    assert result_bytes(tmp_path) is None
    (tmp_path / "result.json").unlink()
    (tmp_path / "result.json").mkdir()
    assert result_bytes(tmp_path) is None
    (tmp_path / "result.json").rmdir()
    (tmp_path / "result.json").write_bytes(b"{}")
    assert result_bytes(tmp_path) == b"{}"


async def test_one_host_has_a_base_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with base_folder(tmp_path, "w", jails=False) as base:
        (base / "left").mkdir()
        with pytest.raises(StartError, match="name this one with --worker"):
            async with base_folder(tmp_path, "w", jails=False):
                pass
        async with base_folder(tmp_path, "w2", jails=False) as other:
            assert other != base
    async with base_folder(tmp_path, "w", jails=False) as base:
        assert [one.name for one in base.iterdir()] == ["lock"]


DEPTH = 1200
"""Folders within folders: more than Python's recursion limit."""


def fill(folder: Path) -> None:
    """A deep tree, and a folder that its owner locked."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    (folder / "locked/inner").mkdir(parents=True)
    (folder / "locked").chmod(0)


async def test_what_an_agent_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with base_folder(tmp_path, "w", jails=False) as base:
        async with work_folder(base, 1, Task(id="t")) as folder:
            fill(folder)
        assert not folder.exists()
        (base / "2").mkdir()
        fill(base / "2")
    assert [one.name for one in base.iterdir()] == ["lock"]
