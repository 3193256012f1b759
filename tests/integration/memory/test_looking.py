"""`memory list`, `show` and `report`: what they tell, and that looking changes nothing."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path

import pytest

from memory import history
from memory.errors import Unusable
from memory.graph.changes import to_bytes
from memory.opening import open_log
from memory.types import Change, Joined, NewNode
from tests.support.memory_commands import HOSTILE, append, fill, growing, run, write_file
from tests.support.stills import data_of
from tests.support.tool_memory import tool

pytestmark = pytest.mark.quick


def test_list_show_and_find(store: str) -> None:
    fill(store, *growing())
    listed = run("list", store).stdout.splitlines()
    assert [line.split()[:4] for line in listed[1:]] == [
        ["square", "3", "67%", "2"],
        ["area", "0", "1", "4"],
    ]
    found = run("list", store, "--match", "the circle's area", "--most", "1").stdout
    assert "area of a circle" in found
    assert "square" not in found
    shown = run("show", store, "squared").stdout  # by another name
    for told in ("name: square", "also called: squared", "comes before: area", "return n * n"):
        assert told in shown
    assert "also called" not in run("show", store, "square", "--version", "2").stdout


def test_the_report_counts_by_step(store: str, tmp_path: Path) -> None:
    fill(store, *growing())
    rows = json.loads(run("report", store, "--json").stdout)["steps"]
    assert [(row["step"], row["nodes"], row["edges"], row["merged"]) for row in rows] == [
        (1, 1, 0, 0),
        (4, 2, 1, 0),
        (5, 2, 1, 1),
    ]
    assert [(row["components"], row["created"], row["reusing"]) for row in rows] == [
        (1, 1, 0),
        (1, 2, 1),
        (1, 1, 0),
    ]
    page = tmp_path / "new" / "page.html"
    assert run("report", store, "--output", page).exit_code == 0
    blocks = data_of(page.read_text(encoding="utf-8"))["blocks"]
    (graphs,) = (block["graphs"] for block in blocks if block["kind"] == "graphs")
    assert len(graphs) == 3
    assert "square" in [node["name"] for node in graphs[-1]["nodes"]]


def test_names_do_not_steer_a_terminal(tmp_path: Path) -> None:
    """Names that no guard saw, in what the store holds and in a file that is imported."""
    store = tmp_path / "m.sqlite"
    made = tuple(
        NewNode(tool=tool(f"{HOSTILE}{number}"), vector=bytes(256), source=HOSTILE)
        for number in (1, 2)
    )
    change = Change(
        group="a",
        step=1,
        made=made,
        joined=(Joined(name=HOSTILE, into=0),),
        edges=((0, 1, 1),),
    )
    append(store, change.group, to_bytes(change))
    write_file(tmp_path / "m.json", tool(HOSTILE))
    for words in (
        ("list", store),
        ("show", store, HOSTILE),
        ("show", store, f"{HOSTILE}2"),
        ("export", store, tmp_path / "out"),
        ("import", tmp_path / "m.json", store),
    ):
        done = run(*words)
        assert done.exit_code == 0, done.output
        assert "onerror" in done.output
        assert "\x1b" not in done.output
        assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in done.output


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b'{"group": "a", "step": 1}',
        to_bytes(Change(group="a", step=1, edges=((0, 1, 1),))),
        to_bytes(Change(group="a", step=1, made=(NewNode(tool=tool("a"), vector=b"odd"),))),
    ],
)
def test_a_change_of_another_release_is_told(tmp_path: Path, data: bytes) -> None:
    store = tmp_path / "m.sqlite"
    fill(str(store), growing()[0])
    append(store, "z", data, 1)
    for command in ("list", "report"):
        done = run(command, store)
        assert done.exit_code == 1
        assert done.stderr.startswith("memory: change 2 cannot be read: ")
        assert len(done.stderr.splitlines()) == 1


def test_a_look_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor need it: a memory in a folder of somebody else's can be looked at."""
    store = tmp_path / "shared" / "m.sqlite"
    fill(str(store), *growing())
    monkeypatch.setattr(history, "LEAST", 0)  # each look would be worth a snapshot
    before = store.read_bytes()
    for words in (("list", store), ("report", store, "--json"), ("list", store, "--match", "x")):
        assert run(*words).exit_code == 0
    assert store.read_bytes() == before
    log = open_log(str(store), embedder="hashing", read_only=True)
    with closing(log), pytest.raises(Unusable, match="readonly"):
        log.append("d", b"", 3)
    assert list(store.parent.iterdir()) == [store]
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert run("list", store).exit_code == 0
    assert list(store.parent.iterdir()) == [store]
