"""What is imitated and in which order: whole traces, each as often as the recipe says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from learner.config.tables import SftTable
from learner.errors import DataError
from learner.imitation.order import batches, steps_of
from learner.imitation.traces import load_traces, widened
from learner.intake.tokenizer_check import TokenizerCheck
from tests.integration.learner.fake_engine import random_group
from toolwright import types as t
from toolwright.trajectory_files import write_trajectories

NAMELESS = TokenizerCheck(Path("no-policy"))
"""Trajectories of any tokenizer are taken."""
VERSION = t.WeightVersion(lineage="a", step=0)


def table(**changes: object) -> SftTable:
    return SftTable.model_validate({"data": "traces", **changes})


def write(folder: Path, groups: int = 5) -> list[t.Trajectory]:
    found = [t for number in range(groups) for t in random_group(number, VERSION, folder, size=2)]
    write_trajectories(folder / "traces", found)
    return found


@given(
    count=st.integers(1, 30),
    size=st.integers(1, 40),
    epochs=st.integers(1, 4),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_epochs_show_each_trace_equally_often_wherever_the_run_is_resumed(
    count: int, size: int, epochs: int, seed: int, data: st.DataObject
) -> None:
    settings = table(batch_size=size, epochs=epochs, seed=seed)
    whole = list(batches(settings, count, 0))
    assert len(whole) == steps_of(settings, count)
    assert Counter(i for batch in whole for i in batch) == dict.fromkeys(range(count), epochs)
    assert all(len(batch) == size for batch in whole[:-1])
    done = data.draw(st.integers(0, len(whole)))
    assert list(batches(settings, count, done)) == whole[done:]


def test_two_epochs_unless_steps_are_given_and_never_both() -> None:
    assert table().shown(10) == 20
    assert table(steps=3, batch_size=4).shown(10) == 12
    with pytest.raises(ValidationError, match="steps = 3 and epochs = 1: give one"):
        table(steps=3, epochs=1)


def test_held_out_data_comes_from_one_place() -> None:
    with pytest.raises(ValidationError, match="data and fraction"):
        table(heldout={"data": "x", "fraction": 0.1})


def test_the_split_keeps_tasks_together_and_every_trace(tmp_path: Path) -> None:
    write(tmp_path)
    traces = load_traces(tmp_path / "traces", 64, NAMELESS, max_length=100)
    train, held = traces.split(0.4, seed=1)
    assert {t.task for t in train.traces}.isdisjoint(t.task for t in held.traces)
    assert len(held.traces) == 4
    assert len(train.traces) + len(held.traces) == 10
    assert traces.split(0.4, seed=1)[1].digest() == held.digest()
    assert any(traces.split(0.4, seed=s)[1].digest() != held.digest() for s in range(2, 6))
    assert len({t.task for t in traces.split(0.01, seed=1)[1].traces}) == 1


def test_a_split_that_leaves_nothing_is_a_sentence(tmp_path: Path) -> None:
    write(tmp_path, groups=1)
    with pytest.raises(DataError, match=r"sft\.heldout\.fraction.*sft\.heldout\.data"):
        load_traces(tmp_path / "traces", 64, NAMELESS, max_length=100).split(0.1, seed=0)


def test_long_traces_go_whole_and_the_limit_itself_fits(tmp_path: Path) -> None:
    lengths = [len(t.sequences[0].token_ids) for t in write(tmp_path)]
    longest = max(lengths)
    assert load_traces(tmp_path / "traces", 64, NAMELESS, max_length=longest).too_long == 0
    found = load_traces(tmp_path / "traces", 64, NAMELESS, max_length=longest - 1)
    assert found.too_long == lengths.count(longest)
    assert len(found.traces) == 10 - found.too_long


def test_all_means_all_but_the_first_token_and_what_is_marked(tmp_path: Path) -> None:
    (one,) = random_group(0, VERSION, tmp_path, size=1)
    write_trajectories(tmp_path / "traces", [one])
    (trace,) = load_traces(tmp_path / "traces", 64, NAMELESS, max_length=100, train_on="all").traces
    (row,) = trace.rows
    ids = list(one.sequences[0].token_ids)
    assert row.tokens.tolist() == ids
    assert row.target.tolist() == [False] + [True] * (len(ids) - 1)

    segments = list(one.sequences[0].segments)
    segments[1] = replace(segments[1], trainable=False)  # a call that the file leaves out
    tail = t.Segment(author=t.Author.TOOL, token_ids=[1, 2], turn=1)
    sequence = replace(one.sequences[0], segments=(*segments, tail))
    write_trajectories(tmp_path / "traces", [replace(one, sequences=(sequence,))])
    (trace,) = load_traces(tmp_path / "traces", 64, NAMELESS, max_length=100, train_on="all").traces
    (row,) = trace.rows
    wanted = [
        s.author is not t.Author.MODEL or s.trainable
        for s in sequence.segments
        for _ in s.token_ids
    ]
    assert row.target.tolist() == [False, *wanted[1:]]


def test_what_teaches_nothing_is_not_widened(tmp_path: Path) -> None:
    (one,) = random_group(0, VERSION, tmp_path, size=1)
    (sequence,) = one.sequences
    mute = replace(sequence, segments=tuple(replace(s, trainable=False) for s in sequence.segments))
    silent = replace(one, sequences=(mute,))
    assert widened(silent) == silent


def test_a_folder_of_shards_is_the_same_as_one_file(tmp_path: Path) -> None:
    found = write(tmp_path)
    write_trajectories(tmp_path / "shards" / "00000.trajectories", found[:3])
    write_trajectories(tmp_path / "shards" / "00001.trajectories", found[3:])
    one, many = (
        load_traces(tmp_path / name, 64, NAMELESS, max_length=100) for name in ("traces", "shards")
    )
    assert one.digest() == many.digest()
    (tmp_path / "shards" / "00002.trajectories.unfinished").touch()
    with pytest.raises(DataError, match="is not whole"):
        load_traces(tmp_path / "shards", 64, NAMELESS, max_length=100)
