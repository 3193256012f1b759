"""Files of rows: what is no task costs its row, and only a file of nothing else is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from engine.core.tasks import BadRow, BadRows, TaskSource
from engine.errors import StartupError
from toolwright.reading.task_rows import row_files
from toolwright.wire import task_to_proto

GOOD = b'{"prompt": "x"}'
DEEP = b'{"prompt": "x", "metadata": ' + b'{"a": ' * 100_000 + b"1" + b"}" * 100_000 + b"}"
BAD = {
    b'{"prompt"': "not_json",
    b'{"prompt": "\xff\xfe"}': "not_utf8",
    b"[1]": "not_an_object",
    b'{"answer": "4"}': "no_question",
    b'{"messages": ["hello"]}': "messages",
    b'{"prompt": "x", "metadata": "' + b"[" * 100_000 + b'"}': "metadata",
    b'{"prompt": "\\ud800"}': "not_json_like",
    DEEP: "not_json",
    b'{"prompt": "x", "image": "absent.png"}': "images",
}


def opened(folder: Path, data: bytes, **options: Any) -> TaskSource:
    (folder / "data.jsonl").write_bytes(data)
    return TaskSource("data.jsonl", folder, seed=0, shuffle=False, **options)


@pytest.mark.parametrize(("line", "kind"), BAD.items(), ids=lambda one: str(one)[:30])
async def test_a_bad_row_costs_its_position_and_no_other(
    tmp_path: Path, line: bytes, kind: str
) -> None:
    source = opened(tmp_path, b"\n".join((GOOD, b"", line, GOOD)))
    assert (await source.at(0)).task.id == "data-0"
    for position in (1, 4):  # the same row in the next epoch
        with pytest.raises(BadRow, match=r"data\.jsonl:3: ") as caught:
            await source.at(position)
        bad = caught.value
        assert (bad.position, bad.kind) == (position, kind)
        json.dumps(bad.fields).encode()
    assert (await source.at(2)).task.id == "data-2"
    assert (await source.at(5)).task.id == "data-2"
    assert [drawn.task.id async for drawn in source.first(2)] == ["data-0", "data-2"]


async def test_a_line_that_is_too_long_is_never_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "MOST_ROW_BYTES", 1000)
    monkeypatch.setattr(row_files, "CHUNK", 64)
    long = b'{"prompt": "' + b"x" * 5000 + b'"}'
    source = opened(tmp_path, b"\n".join((GOOD, long, GOOD, long)))
    assert source.rows == 4
    for position in (1, 3):
        with pytest.raises(BadRow, match="longer than 1000 bytes"):
            await source.at(position)
    assert (await source.at(2)).task.id == "data-2"
    whole = hashlib.sha256((tmp_path / "data.jsonl").read_bytes()).hexdigest()
    assert source.identity.sha256 == whole


async def test_a_byte_order_mark_and_other_line_ends(tmp_path: Path) -> None:
    source = opened(tmp_path, b"\xef\xbb\xbf" + GOOD + b"\r\n" + GOOD + b"\r\n")
    assert [drawn.task.prompt async for drawn in source.first(2)] == ["x", "x"]


async def test_thirty_broken_rows_of_a_thousand_cost_themselves_in_every_epoch(
    tmp_path: Path,
) -> None:
    kinds = list(BAD)[:6]
    lines = [json.dumps({"id": str(i), "prompt": f"{i}?"}).encode() for i in range(1000)]
    for number, at in enumerate(range(7, 1000, 34)):
        lines[at] = kinds[number % 6]
    data = b"\n".join(lines)
    source = opened(tmp_path, data, max_bad_rows=30)
    assert source.bad_rows == 30
    dropped, trained, logged = BadRows(30), [], 0
    for position in range(2000):  # two epochs
        try:
            trained.append((await source.at(position)).task.id)
        except BadRow as bad:
            logged += dropped.add(bad)
    assert (len(trained), len(set(trained))) == (2 * 970, 970)
    assert (dropped.count, logged, dropped.exceeded) == (30, 30, False)
    assert dropped.summary().startswith("30 rows were dropped: ")
    with pytest.raises(StartupError, match=r"30 of 1000 rows .*engine\.max_bad_rows = 29; .*:8: "):
        opened(tmp_path, data, max_bad_rows=29)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "has no rows"),
        (b"\n{", r"no row of .*data\.jsonl is a task: .*data\.jsonl:2: not JSON"),
        (GOOD.decode().encode("utf-16"), r"no row of .* is a task: .*not UTF-8"),
    ],
)
def test_a_file_of_nothing_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(StartupError, match=words):
        opened(tmp_path, data)


async def test_a_file_that_changes_under_the_run_is_noticed(tmp_path: Path) -> None:
    source = opened(tmp_path, GOOD + b"\n" + GOOD)
    await source.at(0)
    (tmp_path / "data.jsonl").write_bytes(b'{"prompt": "y"}\n' * 3)
    with pytest.raises(StartupError, match=r"data\.jsonl changed during the run"):
        await source.at(1)


def parquet(folder: Path, rows: list[dict[str, Any]], **options: Any) -> TaskSource:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "d.parquet", **options)
    return TaskSource("d.parquet", folder, seed=0, shuffle=False)


async def test_parquet_rows_are_read_one_by_one(tmp_path: Path) -> None:
    rows = [{"prompt": f"{i}" if i % 5 else "", "level": i} for i in range(300)]
    source = parquet(tmp_path, rows, row_group_size=110)
    assert (source.rows, source.bad_rows) == (300, 60)
    for position in (299, 1, 2, 109, 111, 3, 301, 218, 221):
        drawn = await source.at(position)
        assert drawn.task.metadata["level"] == position % 300
        assert drawn.where.endswith(f"d.parquet, row {position % 300 + 1}")
    with pytest.raises(BadRow, match=r"d\.parquet, row 6: no question in prompt"):
        await source.at(5)


async def test_a_cell_that_python_cannot_hold_costs_its_row(tmp_path: Path) -> None:
    prompts = pyarrow.array([b"a", b"\xff", b"c"], pyarrow.binary()).view(pyarrow.string())
    days = pyarrow.array([0, 1, 10**9], pyarrow.int32()).cast(pyarrow.date32())
    table = pyarrow.table({"prompt": prompts, "day": days})
    pyarrow.parquet.write_table(table, tmp_path / "d.parquet")
    source = TaskSource("d.parquet", tmp_path, seed=0, shuffle=False)
    assert (source.rows, source.bad_rows) == (3, 2)
    assert (await source.at(0)).task.metadata == {"day": "1970-01-01"}
    for position in (1, 2, 4):
        with pytest.raises(BadRow, match="a cell cannot be read") as caught:
            await source.at(position)
        assert caught.value.kind == "unreadable_cell"


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_what_is_no_parquet_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "d.parquet").write_bytes(data)
    with pytest.raises(StartupError, match=r"d\.parquet is not Parquet"):
        TaskSource("d.parquet", tmp_path, seed=0, shuffle=False)


async def test_whatever_is_given_out_can_be_journaled(tmp_path: Path) -> None:
    line = b'{"id": null, "prompt": 5, "answer": [null, 1e999], "level": NaN, "big": 123456789012}'
    drawn = await opened(tmp_path, line).at(0)
    task_to_proto(drawn.task).SerializeToString()
    assert (drawn.task.id, drawn.task.prompt) == ("data-0", "5")
