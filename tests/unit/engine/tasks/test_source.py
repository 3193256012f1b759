"""Task sources: the same task at the same position, in this life and the next."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from engine.core.protocols.tagged import Tagged
from engine.core.rehearsal import first_that_fits
from engine.core.tasks import BadRow, SourceRewound, TaskSource
from engine.core.text.codec import HuggingFaceCodec
from engine.errors import StartupError
from tests.support.policy import write_policy
from toolwright.types import Task

ROWS = [{"id": f"q{i}", "prompt": f"{i}+1?", "answer": str(i + 1)} for i in range(7)]
ORDER = [0, 4, 3, 2, 6, 1, 5, 4, 0, 6, 3, 2, 5, 1]


def jsonl(folder: Path, rows: Sequence[Any], name: str = "data.jsonl") -> None:
    (folder / name).write_text(
        "\n".join(json.dumps(row) for row in rows) + "\n\n", encoding="utf-8"
    )


def source(folder: Path, name: str, *, seed: int = 0, shuffle: bool = False) -> TaskSource:
    return TaskSource(name, folder, seed=seed, shuffle=shuffle)


async def taken(source: TaskSource, n: int) -> list[Task]:
    return [drawn.task async for drawn in source.first(n)]


async def one(folder: Path, row: Mapping[str, Any]) -> Task:
    jsonl(folder, [row])
    return (await taken(source(folder, "data.jsonl"), 1))[0]


async def ids(source: TaskSource, *positions: int) -> list[str]:
    return [(await source.at(position)).task.id for position in positions]


async def test_parquet_is_the_same_as_jsonl(tmp_path: Path) -> None:
    jsonl(tmp_path, ROWS)
    tasks = await taken(source(tmp_path, "data.jsonl"), 7)
    assert [t.id for t in tasks] == [f"q{i}" for i in range(7)]
    assert tasks[3] == Task(id="q3", prompt="3+1?", answers=("4",), data_source="data")
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(ROWS), tmp_path / "data.parquet", row_group_size=3
    )
    ours, theirs = source(tmp_path, "data.parquet"), source(tmp_path, "data.jsonl")
    assert await taken(ours, 7) == await taken(theirs, 7)
    for position in (6, 1, 2, 5, 0, 9):
        assert await ours.at(position) != await theirs.at(position)  # `where` differs
        assert (await ours.at(position)).task == (await theirs.at(position)).task


@pytest.mark.parametrize("shuffle", [True, False])
async def test_a_position_names_the_same_task_after_a_restart(
    tmp_path: Path, shuffle: bool
) -> None:
    jsonl(tmp_path, ROWS)

    def fresh(seed: int = 3) -> TaskSource:
        return source(tmp_path, "data.jsonl", seed=seed, shuffle=shuffle)

    all_ids = await ids(fresh(), *range(21))
    late = fresh()
    assert await ids(late, 5, 6, 13, 20, 2, 2) == [all_ids[i] for i in (5, 6, 13, 20, 2, 2)]
    epochs = [all_ids[i : i + 7] for i in (0, 7, 14)]
    assert all(sorted(epoch) == [f"q{i}" for i in range(7)] for epoch in epochs)
    if shuffle:
        assert epochs[0] != epochs[1]
        assert await ids(fresh(seed=4), *range(7)) != all_ids[:7]
    else:
        assert epochs[0] == epochs[1] == [f"q{i}" for i in range(7)]


async def test_the_order_of_a_seed_is_the_order_of_all_times(tmp_path: Path) -> None:
    """Written down: a new release that shuffles in another way would swap a run's tasks."""
    jsonl(tmp_path, ROWS)
    found = await ids(source(tmp_path, "data.jsonl", seed=3, shuffle=True), *range(14))
    assert found == [f"q{i}" for i in ORDER]


async def test_more_tasks_than_there_are_is_an_error(tmp_path: Path) -> None:
    """An evaluation of 1,000 tasks must not be 7 tasks 143 times."""
    jsonl(tmp_path, ROWS)
    with pytest.raises(StartupError, match=r"has 7 tasks, but 8 are needed"):
        await taken(source(tmp_path, "data.jsonl"), 8)


FUNCTIONS = """
import threading
import time
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
def mixed(seed):
    n = 0
    while True:
        yield Task(id=f"good-{n}", prompt="x"); n += 1
        yield {"prompt": "x"}
        yield Task(id="object", prompt="x", metadata={"a": object()})
def raises(seed):
    yield Task(id="0", prompt="x")
    raise KeyError("x")
def leaves(seed):
    raise SystemExit(3)
    yield
def slow(seed):
    while True:
        time.sleep(0.05)
        yield Task(id="slow", prompt="x", metadata={"thread": threading.get_ident()})
def bare():
    return []
value = 3
"""


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    (tmp_path / "t.py").write_text(FUNCTIONS, encoding="utf-8")
    return tmp_path


async def test_functions(functions: Path) -> None:
    endless = source(functions, "./t.py:endless", seed=9)
    assert await ids(endless, 0, 4) == ["9-0", "9-4"]
    assert [t.id for t in await taken(endless, 2)] == ["9-0", "9-1"]
    assert await ids(endless, 5) == ["9-5"]
    for position in (5, 2):
        with pytest.raises(SourceRewound, match=f"position {position} is before position 6"):
            await endless.at(position)
    assert await ids(endless, 6) == ["9-6"]
    three = source(functions, "t.py:three")
    assert await ids(three, 2) == ["2"]
    with pytest.raises(StartupError, match=r"t\.py:three ended after 3 tasks"):
        await three.at(3)
    with pytest.raises(StartupError, match="has 3 tasks, but 4"):
        await taken(three, 4)


async def test_positions_that_are_asked_at_once_come_in_order(functions: Path) -> None:
    endless = source(functions, "./t.py:endless")
    found = await asyncio.gather(*(endless.at(i) for i in range(20)))
    assert [drawn.task.id for drawn in found] == [f"0-{i}" for i in range(20)]


async def test_the_loop_goes_on_while_a_source_is_slow_and_one_thread_walks_it(
    functions: Path,
) -> None:
    slow = source(functions, "t.py:slow")
    drawing = asyncio.ensure_future(slow.at(0))
    async with asyncio.timeout(0.2):
        await asyncio.sleep(0)
    assert not drawing.done()
    drawn = [await drawing, await slow.at(1)]
    (thread,) = {one.task.metadata["thread"] for one in drawn}
    assert thread != threading.get_ident()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent.py:f", r"task source no file .*absent\.py"),
        ("t.py:raises", r"raises raised KeyError\('x'\) at position 1"),
        ("t.py:leaves", r"leaves raised SystemExit\(3\) at position 0"),
        ("t.py:dicts", r"yields dict, not toolwright\.types\.Task"),
        ("t.py:bare", "write a function of one argument, the seed"),
        ("t.py:value", "write a function of one argument, the seed"),
    ],
)
async def test_what_is_no_source_function_or_ends_the_source(
    functions: Path, name: str, words: str
) -> None:
    with pytest.raises(StartupError, match=words):
        await taken(source(functions, name), 3)


async def test_what_is_no_task_costs_its_position_alone(functions: Path) -> None:
    mixed = source(functions, "t.py:mixed")
    assert await ids(mixed, 0) == ["good-0"]
    for position, words in ((1, "yields dict, not toolwright"), (2, "not JSON")):
        with pytest.raises(BadRow, match=words) as caught:
            await mixed.at(position)
        assert caught.value.position == position
    assert await ids(mixed, 3) == ["good-1"]
    assert [t.id for t in await taken(mixed, 3)] == ["good-0", "good-1", "good-2"]


PNG = b"\x89PNG\r\n\x1a\nrest"
JPEG = b"\xff\xd8\xffrest"


def images_of(folder: Path, **row: object) -> TaskSource:
    file = folder / "rows.jsonl"
    file.write_text(json.dumps({"prompt": "q", **row}) + "\n", encoding="utf-8")
    return TaskSource("rows.jsonl", folder, seed=0, shuffle=False)


async def test_images_are_media_and_no_metadata(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "b.jpg").write_bytes(JPEG)
    drawn = await images_of(tmp_path, images=["a.png", {"path": "b.jpg"}], level=3).at(0)
    assert [ref.blob.media_type for ref in drawn.task.media] == ["image/png", "image/jpeg"]
    assert [media.data for media in drawn.media] == [PNG, JPEG]
    assert [media.blob for media in drawn.media] == [ref.blob for ref in drawn.task.media]
    assert drawn.task.metadata == {"level": 3}
    assert (await images_of(tmp_path).at(0)).media == ()
    verls = await images_of(tmp_path, images=[{"image": "a.png"}], videos=[{"video": "b.jpg"}]).at(
        0
    )
    assert verls.media == drawn.media, "a row of verl's: images, then videos"
    assert "videos" not in verls.task.metadata
    (only,) = await taken(images_of(tmp_path, image="b.jpg"), 1)
    assert [ref.blob.size for ref in only.media] == [7]


async def test_images_in_parquet_are_bytes(tmp_path: Path) -> None:
    table = pyarrow.Table.from_pylist(
        [{"prompt": "q", "images": [{"bytes": PNG, "path": None}, {"bytes": JPEG, "path": "x"}]}]
    )
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    drawn = await source(tmp_path, "rows.parquet").at(0)
    assert [media.data for media in drawn.media] == [PNG, JPEG]


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (["absent.png"], r"rows\.jsonl:1: .*absent\.png cannot be read"),
        (["text.png"], r"text\.png is not PNG, JPEG"),
        (["large.png"], r"large\.png has \d+ bytes, more than"),
    ],
)
async def test_images_that_cannot_be_had_cost_their_row_alone(
    tmp_path: Path, images: object, words: str
) -> None:
    (tmp_path / "text.png").write_bytes(b"text")
    with (tmp_path / "large.png").open("wb") as large:
        large.write(PNG)
        large.truncate(65 << 20)
    rows = images_of(tmp_path, images=images, id="shown")
    with pytest.raises(BadRow, match=words) as caught:
        await rows.at(0)
    assert (caught.value.task_id, caught.value.kind) == ("shown", "images")


def test_a_source_s_identity_is_its_content_and_its_order(tmp_path: Path, functions: Path) -> None:
    jsonl(tmp_path, ROWS)
    first = source(tmp_path, "data.jsonl").identity
    assert first == source(tmp_path, "data.jsonl").identity
    assert first != source(tmp_path, "data.jsonl", seed=1).identity
    assert first != source(tmp_path, "data.jsonl", shuffle=True).identity
    jsonl(tmp_path, ROWS[:-1])
    assert first != source(tmp_path, "data.jsonl").identity
    function = source(functions, "t.py:endless", seed=5).identity
    assert (function.name, function.sha256, function.seed) == ("t.py:endless", "", 5)


async def test_a_first_row_without_a_prompt_does_not_refuse_the_start(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": ""}]}, {"id": "good", "prompt": "x"}]
    jsonl(tmp_path, rows)
    strict = HuggingFaceCodec(write_policy(tmp_path / "policy", template=STRICT))
    drawn, tokens = await first_that_fits(source(tmp_path, "data.jsonl"), Tagged(), strict)
    assert (drawn.task.id, tokens > 0) == ("good", True)
    jsonl(tmp_path, rows[:1])
    with pytest.raises(StartupError, match=r"task\.protocol does not fit policy\..*no content"):
        await first_that_fits(source(tmp_path, "data.jsonl"), Tagged(), strict)


STRICT = (
    "{% for m in messages %}{% if not m.content %}{{ raise_exception('no content') }}{% endif %}"
    "{{ m.content }}{% endfor %}"
)
