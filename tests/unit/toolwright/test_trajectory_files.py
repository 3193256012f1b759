"""The record survives files, whole or with an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import records
from toolwright import types as t
from toolwright.trajectory_files import (
    UnreadableTrajectories,
    read_trajectories,
    write_trajectories,
)

SIMPLE = t.Trajectory(
    id="a",
    group_id="g",
    task=t.Task(id="q", metadata={"number": 3}),
    sequences=(
        t.Sequence(
            id="a.0", segments=(t.Segment(author=t.Author.PROMPT, token_ids=t.ids([1, 2])),)
        ),
    ),
    status=t.Status.COMPLETED,
    stop_reason=t.StopReason.ANSWERED,
)


@settings(max_examples=8)
@given(st.lists(records.trajectories, max_size=3))
def test_file_round_trip(
    tmp_path_factory: pytest.TempPathFactory, trajectories: list[t.Trajectory]
) -> None:
    file = tmp_path_factory.mktemp("t") / "deep" / "x.trajectories"
    assert write_trajectories(file, trajectories) == len(trajectories)
    assert list(read_trajectories(file)) == trajectories
    assert [p.name for p in file.parent.iterdir()] == [file.name]


@settings(max_examples=25)
@given(st.data())
def test_a_cut_file_is_an_error_wherever_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("t") / "x"
    write_trajectories(file, [SIMPLE])
    whole = file.read_bytes()
    write_trajectories(file, [SIMPLE, SIMPLE])
    file.write_bytes(file.read_bytes()[: len(whole) + data.draw(st.integers(1, len(whole) - 1))])
    read = read_trajectories(file)
    assert next(read) == SIMPLE
    with pytest.raises(UnreadableTrajectories, match=r"is cut.*engine render RECIPE"):
        next(read)


@pytest.mark.parametrize("content", [b"{}\n" * 50, b"\x00\x00", b"\xff" * 40, b"\x02\x08"])
def test_another_kind_of_file_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "conversations.jsonl"
    file.write_bytes(content)
    with pytest.raises(UnreadableTrajectories, match="conversations"):
        list(read_trajectories(file))


def test_a_writer_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "x"
    write_trajectories(file, [SIMPLE])

    def failing() -> object:
        yield SIMPLE
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_trajectories(file, failing())  # type: ignore[arg-type]
    assert list(read_trajectories(file)) == [SIMPLE]


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    for number, name in enumerate(["00001", "00000", "00010"]):
        write_trajectories(
            tmp_path / f"{name}.trajectories", [replace(SIMPLE, id=f"{name}-{number}")]
        )
    (tmp_path / "00000.jsonl").write_text("{}", encoding="utf-8")
    (tmp_path / "00000.openai.jsonl").write_text("{}", encoding="utf-8")
    assert [t.id for t in read_trajectories(tmp_path)] == ["00000-1", "00001-0", "00010-2"]


def test_a_folder_that_is_still_written_is_refused_before_its_first_trajectory(
    tmp_path: Path,
) -> None:
    write_trajectories(tmp_path / "00000.trajectories", [SIMPLE])
    (tmp_path / "00001.jsonl.unfinished").touch()
    with pytest.raises(UnreadableTrajectories, match=r"00001\.jsonl\.unfinished is still written"):
        next(read_trajectories(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableTrajectories, match=r"without a file \*\.trajectories"):
        next(read_trajectories(tmp_path / "empty"))
