"""The rows of a suite: of one data source, the first or a random subset; never one of several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.config import Suite
from engine.core.tasks import BadRow
from engine.core.tasks.source import TaskSource
from engine.core.tasks.training_questions import TrainingQuestions
from engine.errors import StartupError
from engine.serving.evaluation.suite_tasks import SuiteTasks
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

VERSION = WeightVersion(lineage="run", step=1)
ROWS = [
    {"id": f"{number}", "question": f"q{number}", "answer": "1", "data_source": source}
    for number, source in enumerate(["nq"] * 6 + ["hotpotqa"] * 6 + ["bamboogle"] * 2)
]


@pytest.fixture(params=["jsonl", "parquet"])
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / f"rows.{request.param}"
    if request.param == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


async def opened(file: Path, **fields: Any) -> SuiteTasks:
    suite = Suite.model_validate({"name": "heldout", "source": file.name, **fields})
    tasks = SuiteTasks(suite, file.parent, max_bad_rows=9)
    tasks.digest = await tasks.open()  # type: ignore[attr-defined]
    return tasks


async def ids(tasks: SuiteTasks) -> list[str]:
    found = [drawn async for _, drawn in tasks.walk(lambda _: True, version=VERSION)]
    tasks.close()
    return [f"bad {one.position}" if isinstance(one, BadRow) else one.task.id for one in found]


async def test_a_data_source_alone(file: Path) -> None:
    assert await ids(await opened(file, n=3, data_source="hotpotqa")) == ["6", "7", "8"]
    assert await ids(await opened(file, n=2, data_source="bamboogle")) == ["12", "13"]


async def test_a_random_subset_repeats_by_its_seed_and_is_named_in_the_digest(file: Path) -> None:
    drawn, digests = [], set()
    for seed in (1, 1, 2):
        tasks = await opened(file, n=6, subset="random", subset_seed=seed)
        digests.add(tasks.digest)  # type: ignore[attr-defined]
        drawn.append(await ids(tasks))
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(digests) == 2
    assert all(one == sorted(one, key=int) and len(set(one)) == 6 for one in drawn)
    tasks = await opened(file, n=4, subset="random", data_source="nq")
    assert set(await ids(tasks)) <= {f"{number}" for number in range(6)}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"n": 3, "data_source": "nqq"}, "it has nq, hotpotqa, bamboogle"),
        (
            {"n": 3, "data_source": "bamboogle"},
            "has 2 tasks of the data source 'bamboogle', 3 are needed",
        ),
        ({"n": 15, "subset": "random"}, "has 14 tasks, 15 are needed"),
    ],
)
async def test_rows_that_are_not_there_are_refused(
    file: Path, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(StartupError, match=says):
        await opened(file, **fields)


async def test_a_function_has_no_rows_to_choose(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(
        "from toolwright.types import Task\n"
        "def tasks(seed):\n    yield Task(id='a', prompt='1?')\n",
        encoding="utf-8",
    )
    suite = Suite(name="s", source="./made.py:tasks", n=1, subset="random")
    with pytest.raises(StartupError, match="is a function"):
        await SuiteTasks(suite, tmp_path, max_bad_rows=0).open()


async def test_one_source_of_several_gives_a_warning(file: Path) -> None:
    for fields, warns in (
        ({"n": 4}, True),
        ({"n": 7}, False),
        ({"n": 4, "data_source": "nq"}, False),
        ({"n": 12, "subset": "random"}, False),
    ):
        tasks = await opened(file, **fields)
        assert bool(tasks.one_source_of_several()) is warns
        tasks.close()


async def test_questions_shared_with_training_are_those_of_the_chosen_rows(file: Path) -> None:
    training = TrainingQuestions()
    source = TaskSource(file.name, file.parent, seed=0, shuffle=False)
    assert source.index is not None
    shared = set(source.index.questions(range(6)))
    training._marks.append(("train.jsonl", frozenset(shared)))
    for name, found in (("nq", True), ("hotpotqa", False)):
        tasks = await opened(file, n=3, data_source=name)
        assert bool(training.shared_with(tasks._suite, tasks.questions)) is found
        tasks.close()


async def test_a_bad_row_keeps_its_number(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    lines = [json.dumps(ROWS[0]), "{", json.dumps(ROWS[7]), json.dumps(ROWS[8])]
    file.write_text("\n".join(lines), encoding="utf-8")
    assert await ids(await opened(file, n=3)) == ["0", "bad 1", "7"]
    assert await ids(await opened(file, n=2, data_source="hotpotqa")) == ["7", "8"]
