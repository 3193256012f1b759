"""The files of `engine sample`: whatever moment ends the process, nothing is lost or double."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.errors import StartupError
from engine.offline.collect import store as stores
from engine.offline.collect.selection import SelectionOutcome
from engine.offline.collect.store import DecidedTask, Store
from engine.offline.enums import ExportLayout
from engine.serving import json_lines as lines
from tests.support.finished_trajectories import prompt, trajectory
from toolwright.trajectory_files import read_trajectories

SETTINGS = {"recipe": "a"}
KEPT = (2, 0, 1, 3, 1, 2, 2, 1)
"""Trajectories that stay, of each task."""
FIRST = 5
"""Tasks of the first command; the second one goes on to all."""


class Killed(BaseException):
    """The process is gone."""


def task(position: int) -> DecidedTask:
    names = [f"{position}-{index}" for index in range(KEPT[position])]
    return DecidedTask(
        position=position, task_id=f"t{position}", marks=names, read=10, written=3,
        outcomes=[SelectionOutcome.KEPT] * len(names) + [SelectionOutcome.FILTERED],
        refused=[("right", "short") if position % 2 else ("short",)],
        kept=[trajectory(0, prompt(), id=name) for name in names], seconds=float(position),
        rows={ExportLayout.JSONL: [{"id": name} for name in names]},
    )  # fmt: skip


async def command(output: Path, n: int, shard_size: int | None) -> Store:
    """What `engine sample --n` does with the files."""
    store = Store(output, layouts=(ExportLayout.JSONL,), shard_size=shard_size)
    try:
        await store.open(SETTINGS)
        for position in range(n):
            if not store.is_decided(position):
                await store.add(task(position))
        store.finish()
    finally:
        store.close()
    return store


def both(output: Path, shard_size: int | None) -> Store:
    asyncio.run(command(output, FIRST, shard_size))
    return asyncio.run(command(output, len(KEPT), shard_size))


def exported(output: Path) -> list[str]:
    files = sorted(output.glob("*.jsonl")) if output.is_dir() else [Path(f"{output}.jsonl")]
    return [
        json.loads(row)["id"]
        for file in files
        for row in file.read_text(encoding="utf-8").splitlines()
    ]


def killed_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> Callable[[], bool]:
    """Ends the process in the middle of change number `moment` of the disk, once; whether it
    has."""
    left = [moment]

    def is_it() -> bool:
        left[0] -= 1
        return left[0] == 0

    def half_of(write: Callable[..., Any]) -> Callable[..., Any]:
        def written(file: Path, pieces: Any) -> None:
            data = b"".join(pieces)
            if is_it():
                write(file, (data[: len(data) // 2],))
                raise Killed
            write(file, (data,))

        return written

    def before(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*given: Any) -> Any:
            if is_it():
                raise Killed
            return change(*given)

        return changed

    def copied(source: Path, target: Path) -> None:
        data = source.read_bytes()
        if is_it():
            target.write_bytes(data[: len(data) // 2])
            raise Killed
        target.write_bytes(data)

    monkeypatch.setattr(lines, "append_whole", half_of(lines.append_whole))
    monkeypatch.setattr(stores, "append_whole", half_of(stores.append_whole))
    monkeypatch.setattr(os, "truncate", before(os.truncate))
    monkeypatch.setattr(Path, "replace", before(Path.replace))
    monkeypatch.setattr(Path, "unlink", before(Path.unlink))
    monkeypatch.setattr(shutil, "copyfile", copied)
    return lambda: left[0] <= 0


@pytest.mark.parametrize("shard_size", [None, 3])
def test_killed_in_the_middle_of_any_change_nothing_is_lost_or_double(
    tmp_path: Path, shard_size: int | None
) -> None:
    whole = [f"{position}-{index}" for position, n in enumerate(KEPT) for index in range(n)]
    moments = 0
    while True:
        moments += 1
        output = tmp_path / f"at {moments}" / "kept"
        with pytest.MonkeyPatch.context() as patch:
            happened = killed_at(patch, moments)
            with suppress(Killed):
                both(output, shard_size)
            if not happened():
                break
        store = both(output, shard_size)
        assert [one.id for one in read_trajectories(output)] == whole, moments
        assert exported(output) == whole, moments
        totals = store.totals
        assert (totals.tasks, totals.kept, totals.rolled_out) == (8, len(whole), len(whole) + 8)
        assert (totals.read, totals.written, totals.seconds) == (80, 24, 7.0)
        assert (totals.refused["short"], totals.refused_alone["short"]) == (8, 4)
        left = {file.name for file in output.parent.iterdir()} - {"kept", "kept.jsonl"}
        assert left == {"kept.progress.jsonl"}, moments
    assert moments > 30


def test_no_shard_has_more_than_its_size_but_for_one_task_of_more(tmp_path: Path) -> None:
    output = tmp_path / "kept"
    both(output, 2)
    found = [
        [one.id for one in read_trajectories(file)]
        for file in sorted(output.glob("*.trajectories"))
    ]
    assert found == [
        ["0-0", "0-1"], ["2-0"], ["3-0", "3-1", "3-2"], ["4-0"], ["5-0", "5-1"], ["6-0", "6-1"],
        ["7-0"],
    ]  # fmt: skip


def test_lines_whose_trajectories_a_power_cut_took_are_cut_with_all_that_follow(
    tmp_path: Path,
) -> None:
    """Else the next start would take the old line for the new trajectory."""
    output = tmp_path / "kept"
    asyncio.run(command(output, FIRST, None))
    os.truncate(output, output.stat().st_size - 1)
    asyncio.run(command(output, FIRST, None))
    positions = [
        json.loads(line)["position"]
        for line in (tmp_path / "kept.progress.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    ]
    assert positions == [0, 1, 2, 3, 4]
    assert len(list(read_trajectories(output))) == sum(KEPT[:FIRST])


@pytest.mark.parametrize(
    ("gone", "shard_size", "words"),
    [
        ("kept", None, r"kept is missing and held \d+ bytes: restore it"),
        ("kept.jsonl", None, r"kept\.jsonl is missing and held \d+ bytes: restore it"),
        ("kept/00001.trajectories", 2, r"00001\.trajectories is missing .*restore it"),
    ],
)
def test_an_output_that_somebody_took_away_is_told_and_nothing_is_done_again(
    tmp_path: Path, gone: str, shard_size: int | None, words: str
) -> None:
    output = tmp_path / "kept"
    both(output, shard_size)
    before = (tmp_path / "kept.progress.jsonl").read_bytes()
    (tmp_path / gone).rename(tmp_path / "elsewhere")
    with pytest.raises(StartupError, match=words):
        both(output, shard_size)
    assert (tmp_path / "kept.progress.jsonl").read_bytes() == before
    (tmp_path / "elsewhere").rename(tmp_path / gone)
    assert both(output, shard_size).totals.tasks == len(KEPT)


@pytest.mark.parametrize(("number", "shard_size"), [(1, None), (2, 2), (4, None)])
def test_a_line_between_others_that_cannot_be_read_is_told_and_nothing_is_changed(
    tmp_path: Path, number: int, shard_size: int | None
) -> None:
    """Else its task would be done again beside its trajectories."""
    output = tmp_path / "kept"
    both(output, shard_size)
    lines = tmp_path / "kept.progress.jsonl"
    whole = lines.read_bytes().splitlines(keepends=True)
    damaged = [*whole]
    damaged[number - 1] = b"\0" * (len(whole[number - 1]) - 1) + b"\n"
    lines.write_bytes(b"".join(damaged))
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(StartupError, match=rf"line {number} cannot be read, but later ones can"):
        both(output, shard_size)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    lines.write_bytes(b"".join(whole[: max(1, number - 1)]))  # the fix that it names
    assert both(output, shard_size).totals.tasks == len(KEPT)
    assert len(list(read_trajectories(output))) == sum(KEPT)


def test_the_copy_of_a_finished_file_is_durable_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut after the renaming would else leave less of it, beside the whole."""
    output = tmp_path / "kept"
    asyncio.run(command(output, FIRST, None))
    durable: list[int] = []
    fsync, replace = os.fsync, Path.replace

    def synced(number: int) -> None:
        durable.append(os.fstat(number).st_ino)
        fsync(number)

    def replaced(file: Path, target: Path) -> Path:
        assert file.stat().st_ino in durable, target
        return replace(file, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    asyncio.run(command(output, len(KEPT), None))
    assert len(durable) == 5  # two copies, two whole files and their folder


@pytest.mark.parametrize("shard_size", [None, 3])
def test_what_is_there_and_is_something_else_is_left_alone(
    tmp_path: Path, shard_size: int | None
) -> None:
    output = tmp_path / "kept"
    output.mkdir()
    (output / "00007.trajectories").write_text("precious", encoding="utf-8")
    with pytest.raises(StartupError, match=r"exists already .* choose another --output"):
        both(output, shard_size)
    assert (output / "00007.trajectories").read_text(encoding="utf-8") == "precious"


def test_time_that_no_task_tells_of_is_kept(tmp_path: Path) -> None:
    async def opened(more: float) -> float:
        store = Store(tmp_path / "kept")
        await store.open(SETTINGS)
        if more:
            await store.add_seconds(more)
        store.finish()
        store.close()
        return store.totals.seconds

    assert (asyncio.run(opened(12.5)), asyncio.run(opened(0.0))) == (12.5, 12.5)
