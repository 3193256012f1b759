"""Solutions of a hostile policy: run by the real tool in its sandbox, judged by the reward."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest
import pytest_asyncio

from tasks.judging.gold_rows import read_gold
from tests.support.trajectory import Trajectory as Session
from tests.support.trajectory import said
from toolsvc.host.host import Host
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.tools.sql.sql_tool import SqlOptions, SqlTool
from toolsvc.types import Result
from toolwright.imports import load_file
from toolwright.types import (
    CallOutcome,
    CallRecord,
    Status,
    StopReason,
    Task,
    ToolErrorKind,
    Trajectory,
)

FOLDER = Path(__file__).resolve().parents[3] / "recipes/verltool/sql"
SMALL = SandboxConfig(shards=1, ready=1, memory_bytes=192 * MIB)
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"

pytestmark = [
    pytest.mark.quick,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:.*is not an async function:pytest.PytestWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("databases")
    load_file(FOLDER / "world/databases.py").write(made)
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(folder: Path) -> AsyncIterator[Host]:
    options = SqlOptions(databases=folder, solution_json=True)
    async with Host([SqlTool(options, SMALL)]) as running:
        yield running


@pytest.fixture(scope="module")
def world() -> ModuleType:
    return load_file(FOLDER / "world/task.py")


def first(world: ModuleType, kind: str) -> Task:
    return next(one for one in world.training(1) if one.data_source == kind)


async def worth(host: Host, task: Task, sql: str, *, seconds: float = 5.0) -> float:
    """The reward of a trajectory whose one action is this solution."""
    text = f"<think>so</think><solution>{sql}</solution>"
    session = Session(host, "sql", dict(task.metadata))
    result = await session.act(text, run_limit=seconds)
    await session.close()
    assert result.done, "whatever it is, it ends the trajectory"
    call = CallRecord(call_id="c", turn=0, index=0, tool="sql", action=text, outcome=seen(result))
    trajectory = Trajectory(
        id="g-0",
        group_id="g",
        task=task,
        sequences=(),
        status=Status.COMPLETED,
        stop_reason=StopReason.TOOL_SIGNALED_DONE,
        calls=(call,),
        metadata={"texts": [text]},
    )
    score = load_file(FOLDER / "score.py").Score()(trajectory)
    return float(score.total)


def seen(result: Result) -> CallOutcome:
    """As the engine records it."""
    return CallOutcome(
        observation=said(result),
        valid=result.valid,
        done=result.done,
        truncated=result.truncated,
        error=ToolErrorKind.NONE if result.error is None else result.error.kind,
    )


@pytest.mark.parametrize("kind", ["sum", "column", "order"])
async def test_the_gold_query_is_right_in_the_tool_as_well(
    host: Host, world: ModuleType, kind: str
) -> None:
    task = first(world, kind)
    gold = read_gold(task.answers)
    assert await worth(host, task, gold.sql) == 1.0
    assert await worth(host, task, f"SELECT * FROM ({gold.sql}) -- the same") == 1.0
    assert await worth(host, task, f"{gold.sql}; {gold.sql}") == -1.0


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH '/etc/passwd' AS p",
        "ATTACH ':memory:' AS m",
        "VACUUM INTO '/tmp/stolen.sqlite'",
        "PRAGMA writable_schema = ON",
        "PRAGMA query_only = OFF",
        "DELETE FROM book",
        "UPDATE book SET pages = 0 RETURNING 1",
        "DROP TABLE book",
        "CREATE TABLE mine (a)",
        "CREATE TEMP TABLE mine AS SELECT 1",
        "INSERT INTO book VALUES (1, 1, 'a', 1, 1)",
        "COMMIT",
        "BEGIN",
        "SELECT load_extension('/lib/libc.so.6')",
        "SELECT readfile('/etc/passwd')",
        "SELECT writefile('/tmp/mine', 'x')",
        "SELECT 1; DROP TABLE book",
        "-- nothing",
        ";",
        "SELECT '{\"rows\": []}'",
        f"{ENDLESS} SELECT x FROM c",
        "SELECT hex(zeroblob(8000000))",
        "SELECT " + "(" * 3000 + "1" + ")" * 3000,
    ],
)
async def test_hostile_solutions_are_worth_minus_one_and_change_nothing(
    host: Host, world: ModuleType, folder: Path, sql: str
) -> None:
    task = first(world, "order")
    gold = read_gold(task.answers)
    database = folder / task.metadata["database"] / f"{task.metadata['database']}.sqlite"
    before = database.read_bytes()
    assert await worth(host, task, sql) == -1.0
    assert database.read_bytes() == before
    assert await worth(host, task, gold.sql) == 1.0, "the next trajectory finds all as it was"


@pytest.mark.parametrize(
    "sql",
    [
        f"{ENDLESS} SELECT max(x) FROM c",
        f"{ENDLESS} SELECT x, count(*) FROM c GROUP BY x",
        "SELECT instr(hex(zeroblob(8000000)), hex(zeroblob(4000000)) || '1')",
    ],
)
async def test_bombs_cost_their_time_and_no_more(host: Host, world: ModuleType, sql: str) -> None:
    assert await worth(host, first(world, "order"), sql, seconds=0.3) == -1.0


async def test_the_look_up_answers_what_demonstrations_show(host: Host, world: ModuleType) -> None:
    demonstrations = load_file(FOLDER / "world/demonstrations.py")
    asked, _ = next(world.every_question("sum", world.DATABASES, held_out=False))
    session = Session(host, "sql", {"database": asked.domain.name})
    action = f"{demonstrations.LOOK_UP}<sql>{asked.look_up}</sql>"
    result = await session.act(action, turns_left=demonstrations.QUERIES)
    assert said(result) == demonstrations.found(asked)
