"""Task sources: the same task at the same position, in this life and the next."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from engine.errors import StartupError
from engine.tasks import TaskSource, for_purpose
from toolwright.types import Purpose, Task

ROWS = [{"id": f"q{i}", "prompt": f"{i}+1?", "answer": str(i + 1)} for i in range(7)]
Write = Callable[[Sequence[Any]], TaskSource]


def jsonl(folder: Path, rows: Sequence[Any], name: str = "data.jsonl") -> None:
    (folder / name).write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")


def source(folder: Path, name: str, *, seed: int = 0, shuffle: bool = False) -> TaskSource:
    return TaskSource(name, folder, seed=seed, shuffle=shuffle)


def one(folder: Path, row: Mapping[str, Any]) -> Task:
    jsonl(folder, [row])
    return source(folder, "data.jsonl").take(1)[0]


def test_jsonl(tmp_path: Path) -> None:
    jsonl(tmp_path, ROWS)
    tasks = source(tmp_path, "data.jsonl").take(7)
    assert [t.id for t in tasks] == [f"q{i}" for i in range(7)]
    assert tasks[3] == Task(id="q3", prompt="3+1?", answers=("4",), data_source="data")


def test_parquet_is_the_same(tmp_path: Path) -> None:
    jsonl(tmp_path, ROWS)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "data.parquet")
    assert source(tmp_path, "data.parquet").take(7) == source(tmp_path, "data.jsonl").take(7)


def test_verl_s_parquet_fits_as_it_is(tmp_path: Path) -> None:
    """Messages under `prompt`, the answer in reward_model; tools never get to see the answer."""
    row = {
        "data_source": "gsm8k",
        "prompt": [{"role": "user", "content": "1+1?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {"index": 5, "split": "train"},
    }
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "v.parquet")
    (task,) = source(tmp_path, "v.parquet").take(1)
    assert task == Task(
        id="v-0",
        data_source="gsm8k",
        messages=({"role": "user", "content": "1+1?"},),
        answers=("2",),
        metadata={"ability": "math", "extra_info": {"index": 5, "split": "train"}},
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"answer": "a"}, ("a",)),
        ({"answer": 4}, ("4",)),
        ({"answer": 0}, ("0",)),
        ({"answer": 0.5}, ("0.5",)),
        ({"answer": ["a", "b"]}, ("a", "b")),
        ({"answers": ["a"]}, ("a",)),
        ({"answer": None}, ()),
        ({}, ()),
    ],
)
def test_answers(tmp_path: Path, given: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert one(tmp_path, {"question": "?", **given}).answers == expected


def test_other_columns_and_metadata_are_metadata(tmp_path: Path) -> None:
    task = one(
        tmp_path,
        {"messages": [{"role": "user", "content": "x"}], "level": 3, "metadata": {"db": "d"}},
    )
    assert task.messages == ({"role": "user", "content": "x"},)
    assert task.metadata == {"level": 3, "db": "d"}
    assert one(tmp_path, {"prompt": "x", "metadata": '{"db": "d"}'}).metadata == {"db": "d"}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"answer": "4"}, "row 1: neither prompt, question nor messages"),
        ([1], "row 1: a row is an object, not list"),
        ({"prompt": "x", "metadata": "{"}, "row 1: metadata is not JSON"),
        ({"prompt": "x", "metadata": [1]}, "row 1: metadata is an object, not list"),
        ({"messages": ["hello"]}, "row 1: messages are objects"),
    ],
)
def test_rows_that_do_not_fit_are_named(tmp_path: Path, row: Any, words: str) -> None:
    jsonl(tmp_path, [row])
    with pytest.raises(StartupError, match=rf"data\.jsonl, {words}"):
        source(tmp_path, "data.jsonl")


def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"no file .*data\.jsonl.*the evaluation suite"):
        source(tmp_path, "data.jsonl")
    (tmp_path / "data.jsonl").write_text("\n")
    with pytest.raises(StartupError, match="has no rows"):
        source(tmp_path, "data.jsonl")
    (tmp_path / "data.jsonl").write_text('{"prompt": "x"}\n{"prompt"\n')
    with pytest.raises(StartupError, match=r"data\.jsonl:2: not JSON"):
        source(tmp_path, "data.jsonl")


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_position_names_the_same_task_after_a_restart(tmp_path: Path, shuffle: bool) -> None:
    jsonl(tmp_path, ROWS)

    def fresh(seed: int = 3) -> TaskSource:
        return source(tmp_path, "data.jsonl", seed=seed, shuffle=shuffle)

    walked = fresh()
    ids = [walked.at(i).id for i in range(21)]
    late = fresh()
    assert [late.at(i).id for i in (5, 6, 13, 20)] == [ids[i] for i in (5, 6, 13, 20)]
    assert late.at(2).id == ids[2]  # back
    assert late.at(2).id == ids[2]
    epochs = [ids[i : i + 7] for i in (0, 7, 14)]
    assert all(sorted(epoch) == [f"q{i}" for i in range(7)] for epoch in epochs)
    if shuffle:
        assert epochs[0] != epochs[1]
        other = fresh(seed=4)
        assert [other.at(i).id for i in range(7)] != ids[:7]
    else:
        assert epochs[0] == epochs[1] == [f"q{i}" for i in range(7)]


def test_taking_does_not_move_the_walk(tmp_path: Path) -> None:
    jsonl(tmp_path, ROWS)
    walked = source(tmp_path, "data.jsonl")
    assert walked.at(0).id == "q0"
    assert [t.id for t in walked.take(3)] == ["q0", "q1", "q2"]
    assert walked.at(1).id == "q1"


def test_more_tasks_than_there_are_is_an_error(tmp_path: Path) -> None:
    """An evaluation of 1,000 tasks must not be 7 tasks 143 times."""
    jsonl(tmp_path, ROWS)
    with pytest.raises(StartupError, match=r"has 7 tasks, 8 are asked.*lower n of the"):
        source(tmp_path, "data.jsonl").take(8)


FUNCTIONS = """
from toolwright.types import Task
def endless(seed):
    n = 0
    while True:
        yield Task(id=f"{seed}-{n}", prompt="x"); n += 1
def three(seed):
    return [Task(id=str(i), prompt="x") for i in range(3)]
def dicts(seed):
    while True:
        yield {"prompt": "x"}
def bare():
    return []
value = 3
"""


def test_functions(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(FUNCTIONS)
    endless = source(tmp_path, "./t.py:endless", seed=9)
    assert [endless.at(i).id for i in (0, 4, 2)] == ["9-0", "9-4", "9-2"]
    assert [t.id for t in endless.take(2)] == ["9-0", "9-1"]
    three = source(tmp_path, "t.py:three")
    assert three.at(2).id == "2"
    with pytest.raises(StartupError, match=r"t\.py:three ended after 3 tasks.*never ends"):
        three.at(3)
    with pytest.raises(StartupError, match="has 3 tasks, 4 are asked"):
        three.take(4)


@pytest.mark.parametrize("name", ["bare", "value"])
def test_what_is_no_source_function(tmp_path: Path, name: str) -> None:
    (tmp_path / "t.py").write_text(FUNCTIONS)
    with pytest.raises(StartupError, match="write a function of one argument, the seed"):
        source(tmp_path, f"t.py:{name}")


def test_a_function_that_yields_something_else(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(FUNCTIONS)
    with pytest.raises(StartupError, match=r"yields dict, not toolwright\.types\.Task"):
        source(tmp_path, "t.py:dicts").take(1)
    with pytest.raises(StartupError, match=r"yields dict, not toolwright\.types\.Task"):
        source(tmp_path, "t.py:dicts").at(0)


def test_a_source_that_cannot_be_imported(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"task source no file .*absent\.py"):
        source(tmp_path, "absent.py:f")


def test_the_same_task_in_the_other_lane() -> None:
    task = Task(id="a", prompt="x", metadata={"b": 1})
    assert for_purpose(task, Purpose.EVAL) == Task(
        id="a", prompt="x", metadata={"b": 1}, purpose=Purpose.EVAL
    )


PNG = b"\x89PNG\r\n\x1a\nrest"
JPEG = b"\xff\xd8\xffrest"


def images_of(folder: Path, **row: object) -> TaskSource:
    file = folder / "rows.jsonl"
    file.write_text(json.dumps({"prompt": "q", **row}) + "\n")
    return TaskSource("rows.jsonl", folder, seed=0, shuffle=False)


def test_images_are_media_and_no_metadata(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "b.jpg").write_bytes(JPEG)
    source = images_of(tmp_path, images=["a.png", {"path": "b.jpg"}], level=3)
    task = source.at(0)
    assert [ref.blob.media_type for ref in task.media] == ["image/png", "image/jpeg"]
    assert [media.data for media in source.media(task)] == [PNG, JPEG]
    assert task.metadata == {"level": 3}
    assert source.media(images_of(tmp_path).at(0)) == ()
    assert [ref.blob.size for ref in images_of(tmp_path, image="b.jpg").take(1)[0].media] == [7]


def test_images_in_parquet_are_bytes(tmp_path: Path) -> None:

    table = pyarrow.Table.from_pylist(
        [{"prompt": "q", "images": [{"bytes": PNG, "path": None}, {"bytes": JPEG, "path": "x"}]}]
    )
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    source = TaskSource("rows.parquet", tmp_path, seed=0, shuffle=False)
    assert [media.data for media in source.media(source.at(0))] == [PNG, JPEG]


def test_images_that_cannot_be_had_are_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"task rows-0: .*absent\.png cannot be read"):
        images_of(tmp_path, images=["absent.png"]).at(0)
    with pytest.raises(StartupError, match=r"row 1: an image is a path, bytes or .*not int"):
        images_of(tmp_path, images=[3])
    (tmp_path / "a.png").write_bytes(b"text")
    with pytest.raises(StartupError, match=r"a\.png: no PNG, JPEG"):
        images_of(tmp_path, images=["a.png"]).at(0)
    (tmp_path / "a.png").write_bytes(PNG)
    source = images_of(tmp_path, images=["a.png"])
    task = source.at(0)
    (tmp_path / "a.png").write_bytes(PNG + b"other")
    with pytest.raises(StartupError, match="its media changed"):
        source.media(task)
