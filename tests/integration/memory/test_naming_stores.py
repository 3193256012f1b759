"""Stores as people name them to commands: mistakes, passwords, files of other programs."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from console.course import memory_page
from console.machine.programs import Said, ask
from memory.opening import shown
from tests.support.memory_commands import fill, growing, run, with_store, write_file
from tests.support.recipes import write_recipe
from tests.support.redis import redis_server
from tests.support.tool_memory import tool
from toolwright.recipe import load_recipe

pytestmark = pytest.mark.quick


def test_a_store_of_another_program_stays_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.store.sqlite.BUSY_S", 0.1)
    fill(str(tmp_path / "m.sqlite"), *growing())
    write_file(tmp_path / "m.json", tool("cube"))
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other, isolation_level=None)) as db:
        db.execute("CREATE TABLE letters (body TEXT)")
        for doing, told in (
            ("SELECT 1", "tables of another program"),
            ("BEGIN EXCLUSIVE", "database is locked"),
        ):
            db.execute(doing)
            for words in (("copy", tmp_path / "m.sqlite"), ("import", tmp_path / "m.json")):
                done = run(*words, other)
                assert done.exit_code == 1
                assert told in done.stderr
            assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("letters",)]
    (tmp_path / "empty").touch()  # as mktemp makes it
    assert run("copy", tmp_path / "m.sqlite", tmp_path / "empty").exit_code == 0


def test_a_password_is_told_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def asking(argv: Sequence[str], **how: Any) -> Said:
        asked.extend(argv)
        return ask(argv, **how)

    monkeypatch.setattr(memory_page, "ask", asking)
    with redis_server("noeviction") as server:
        with Redis(port=server.port) as client:
            client.config_set("requirepass", "pass")
        stores = [f"{server.url}#{name}".replace("//", "//:pass@") for name in ("one", "two", "no")]
        fill(stores[0], *growing())
        write_file(tmp_path / "m.json", tool("cube"))
        for words, told in (
            (("copy", stores[0], stores[1]), f"version 3: {server.url}#two"),
            (("copy", stores[0], stores[1]), f"{server.url}#two already"),
            (("import", tmp_path / "m.json", stores[1]), f"version 4: {server.url}#two"),
            (("list", stores[2]), f"no memory at {server.url}#no"),
        ):
            done = run(*words)
            assert told in done.output
            assert "pass@" not in done.output
        recipe = write_recipe(tmp_path, with_store(tmp_path, stores[0]))
        assert memory_page.write_memory_page(load_recipe(recipe), tmp_path) == ""
    assert '"square"' in (tmp_path / "memory.html").read_text(encoding="utf-8")
    assert "pass@" not in (tmp_path / "memory.html").read_text(encoding="utf-8")
    assert "pass@" not in " ".join(asked)


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("a/file", "a/file"),
        ("redis://me:word@host:1/0#name", "redis://host:1/0#name"),
        ("redis://:wo/rd#wo@rd?@host/0", "redis://host/0"),
        ("unix://:word@/run/redis.sock?password=word#name", "unix:///run/redis.sock#name"),
        ("reddis://:word@host/0", "reddis://host/0"),
        ("redis://:word@[::1", "redis://[::1"),
    ],
)
def test_a_store_is_shown_without_its_password(store: str, told: str) -> None:
    assert shown(store) == told


def test_a_mistyped_address_is_no_folder(tmp_path: Path) -> None:
    """Neither for the process that serves a memory nor for the page that shows it."""
    recipe = write_recipe(tmp_path, with_store(tmp_path, "reddis://:word@127.0.0.1/0"))
    reason = "reddis://127.0.0.1/0 is not a store: give a file, or redis://HOST:PORT/DB#NAME"
    done = subprocess.run(
        [sys.executable, "-m", "memory.cli", "serve", recipe],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, f"memory: {reason}\n")
    assert memory_page.write_memory_page(load_recipe(recipe), tmp_path) == reason
    assert not list(tmp_path.rglob("*reddis*"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("list", "{}/nothing.sqlite"), "there is no memory at"),
        (("show", "{}/m.sqlite", "cube"), "no tool 'cube': `memory list` names them"),
        (("show", "{}/m.sqlite", "square", "--version", "9"), "versions 0 to 3, and not 9"),
        (("import", "{}/text", "{}/new.sqlite"), "is not what `memory export` writes"),
        (("import", "{}/deep", "{}/new.sqlite"), "memory:"),
        (("import", "{}/m.sqlite", "{}/new.sqlite"), "is not what `memory export` writes"),
        (("import", "{}/endless", "{}/new.sqlite"), "is not a regular file"),
        (("import", "{}/large", "{}/new.sqlite"), "more than the 268435456 bytes"),
        (("import", "{}/infinite", "{}/new.sqlite"), "is not what `memory export` writes"),
        (("import", "{}/twice", "{}/new.sqlite"), "two tools of one name"),
        (("import", "{}/wordy", "{}/new.sqlite"), "'wwww"),
        (("copy", "{}/m.sqlite", "{}/m.sqlite"), "name an empty store"),
        (("copy", "{}/m.sqlite", "{}/new.sqlite", "--version", "4"), "not 4"),
        (("list", "redis://127.0.0.1:1/0"), "memory:"),
        (("import", "{}/m.json", "redis://:word/s@127.0.0.1/0"), "no address that can be read"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    fill(str(tmp_path / "m.sqlite"), *growing())
    (tmp_path / "text").write_text("no memory", encoding="utf-8")
    (tmp_path / "deep").write_text("[" * 100_000, encoding="utf-8")
    (tmp_path / "wordy").write_text(json.dumps({"format": "w" * 1_000_000}), encoding="utf-8")
    os.mkfifo(tmp_path / "endless")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(1 << 40)
    square = growing()[0].rollouts[0].candidates[0]
    write_file(tmp_path / "m.json", square)
    write_file(tmp_path / "twice", square, square)
    whole = (tmp_path / "m.json").read_text(encoding="utf-8")
    (tmp_path / "infinite").write_text(
        whole.replace('"calls": 0', '"calls": 1e999'), encoding="utf-8"
    )
    done = run(*(word.format(tmp_path) for word in words))
    assert done.exit_code == 1, done.output
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("memory: ")
    assert len(sentence) < 1000
    assert "word" not in sentence.replace("password", "")
    assert told in sentence
