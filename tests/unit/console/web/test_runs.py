"""Which runs are shown, and that they are read while somebody looks, no longer."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from console.cli import app
from console.errors import ConsoleError, RecordBroken
from console.web import keeping
from console.web.index import queries
from console.web.keeping import Keeper
from console.web.runs import NewRuns, Run, find_runs, open_runs
from console.web.serving import serve
from tests.support.recorded_runs import Recorded
from tests.support.waiting import holds_for, until


def opened(folder: Path, cache: Path) -> Run:
    (run,) = open_runs(find_runs([folder]), cache)
    return run


def test_runs_below_a_folder_are_found_and_named_apart(tmp_path: Path) -> None:
    for name in ("x/seed-1", "x/seed-2", "y/deep/seed-1"):
        Recorded(tmp_path / name)
    (tmp_path / "x/seed-1/inner").mkdir()
    (tmp_path / "x/seed-1/inner/learner.jsonl").touch()
    found = find_runs([tmp_path, tmp_path / "x" / "seed-1"])
    assert [str(one.relative_to(tmp_path)) for one in found] == [
        "x/seed-1", "x/seed-2", "y/deep/seed-1",
    ]  # fmt: skip
    names = [run.name for run in open_runs(found, tmp_path)]
    assert names == ["x/seed-1", "x/seed-2", "deep/seed-1"]


def test_a_folder_without_runs_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordBroken, match="is no run folder"):
        find_runs([tmp_path])
    with pytest.raises(RecordBroken):
        find_runs([tmp_path / "nowhere"])


async def test_growth_is_told_to_who_listens_and_nothing_is_read_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "INTERVAL_S", 0.01)
    recorded = Recorded(tmp_path / "run")
    recorded.journal([recorded.trajectory("g0-0")])
    run = opened(recorded.folder, tmp_path)

    def rows() -> int:
        return queries.count(run.index.file)

    keeper = Keeper([run])
    async with keeper.keeping():
        await until(lambda: run.whole and rows() == 1, "the first reading")
        recorded.journal([recorded.trajectory("g1-0")])
        await holds_for(0.2, lambda: rows() == 1, "no reading while nobody looks")
        with keeper.listening() as changed:
            await until(changed.is_set, "word of the growth")
            assert rows() == 2
            changed.clear()
            await holds_for(0.1, lambda: not changed.is_set(), "silence where nothing comes")
    with pytest.raises(sqlite3.ProgrammingError):
        run.index.refresh()


async def test_a_run_that_begins_is_shown_under_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "LOOK_S", 0.01)
    home = tmp_path / "runs"
    first = opened(Recorded(home / "x" / "a").folder, tmp_path)
    keeper = Keeper([first], NewRuns([home], tmp_path))
    async with keeper.keeping():
        with keeper.listening() as changed:
            await until(lambda: first.whole, "the first reading")
            changed.clear()
            recorded = Recorded(home / "y" / "a")
            recorded.journal([recorded.trajectory()])
            await until(lambda: "y/a" in keeper.runs and keeper.runs["y/a"].whole, "the new run")
            assert changed.is_set()
    assert list(keeper.runs) == ["a", "y/a"], "links to a shown run still lead there"
    assert queries.count(keeper.runs["y/a"].index.file) == 1


async def test_an_index_that_cannot_be_written_is_a_remark_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "AFTER_FAULT_S", 0.01)
    run = opened(Recorded(tmp_path / "run").folder, tmp_path)
    faults = iter([sqlite3.OperationalError("disk is full")] * 2)
    real = run.index.refresh

    def refresh() -> bool:
        if (fault := next(faults, None)) is not None:
            raise fault
        return real()

    monkeypatch.setattr(run.index, "refresh", refresh)
    keeper = Keeper([run])
    with keeper.listening():
        async with keeper.keeping():
            await until(lambda: "disk is full" in run.fault, "the fault")
            await until(lambda: run.whole and not run.fault, "the mend")


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("0.0.0.0:0", "set a bearer token"),
        ("127.0.0.1", "write HOST:PORT"),
        ("127.0.0.1:99999", "write HOST:PORT"),
    ],
)
async def test_an_address_that_cannot_be_served_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen: str, words: str
) -> None:
    monkeypatch.delenv("TOOLWRIGHT_TOKEN", raising=False)
    with pytest.raises(ConsoleError, match=words):
        await serve([Recorded(tmp_path / "run").folder], listen)


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    runner = CliRunner()
    found = runner.invoke(app, ["view", "--web", str(tmp_path)])
    assert (found.exit_code, "is no run folder" in found.stderr) == (1, True)
    assert runner.invoke(app, ["view"]).exit_code == 2
    two = runner.invoke(app, ["view", str(tmp_path), str(tmp_path)])
    assert (two.exit_code, "several are for --web" in two.stderr) == (2, True)
