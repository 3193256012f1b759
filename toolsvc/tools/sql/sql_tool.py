"""The `sql` tool: what the policy writes, and what it reads.

Owns the action's format, the reminder of turns and the answer that ends a trajectory. The backend
owns all that concerns a database. The last `<sql> ... </sql>` block of an action is a query. In an
action without one, the last `<solution> ... </solution>` is the answer, which ends the trajectory
(VerlTool, table 13).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, Field, SecretStr, model_validator

from toolsvc.plugin.actions import RAW, InvalidAction, last_block
from toolsvc.plugin.tool import STRICT, Cancellation, OutOfProcess, Tool
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.tools.sql.postgres import PostgresBackend
from toolsvc.tools.sql.sqlite import SqliteBackend
from toolsvc.tools.sql.templates import Templates
from toolsvc.tools.sql.types import SqlAnswer, SqlBackend
from toolsvc.types import Call, RawFormat, Result, SessionInfo, Text, ToolError
from toolwright.types import ToolErrorKind

QUERY = ("<sql>", "</sql>")
SOLUTION = ("<solution>", "</solution>")
LONGEST = 1_000_000
"""Characters of a statement; the sandbox takes messages of 4 MiB."""


class Statement(NamedTuple):
    sql: str
    final: bool
    """Whether it is the answer, not a query."""


def find_statement(action: str) -> Statement:
    """Statement of the action. Raises InvalidAction if it has none, or an empty one."""
    for (opening, closing), final in ((QUERY, False), (SOLUTION, True)):
        if closing not in action:
            continue
        sql = last_block(action, opening, closing).strip()
        if not sql:
            raise InvalidAction(f"nothing between {opening} and {closing}")
        if "\0" in sql:
            raise InvalidAction("a statement cannot hold a NUL character")
        if len(sql) > LONGEST:
            raise InvalidAction(f"the statement has more than {LONGEST} characters")
        return Statement(sql, final)
    raise InvalidAction("the action has neither <sql> ... </sql> nor <solution> ... </solution>")


class SqlOptions(BaseModel):
    """Options of `sql`: exactly one of `databases` and `dsn`."""

    model_config = STRICT

    databases: Path | None = Field(
        default=None, description="SQLite: a database file, or a folder of them"
    )
    dsn: SecretStr | None = Field(
        default=None, description="PostgreSQL: postgresql://policy_{1-32}@host/database"
    )
    key: str = Field(default="database", description="key of the metadata that names the database")
    writable: bool = Field(
        default=False, description="statements may change the database until the session ends"
    )
    rows: int = Field(default=50, ge=1, description="rows shown of a result above 9000 characters")
    output_kib: int = Field(default=64, ge=1, description="KiB shown of any result")
    run_solution: bool = Field(
        default=False, description="also run the solution that ends a trajectory"
    )
    solution_json: bool = Field(
        default=False,
        description="run the solution, and give its rows as JSON for a reward to compare (SQLite)",
    )
    cache_mib: int = Field(
        default=1024, ge=1, description="SQLite: databases kept in memory to copy from"
    )
    connections: int = Field(
        default=32, ge=1, description="PostgreSQL: sessions that query at the same time"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.databases is None) == (self.dsn is None):
            raise ValueError("set sql.databases=FOLDER (SQLite) or sql.dsn=... (PostgreSQL)")
        if self.solution_json and (self.dsn is not None or self.run_solution):
            raise ValueError("sql.solution_json is for SQLite, and in place of sql.run_solution")
        return self


class SqlTool(Tool):
    Config = SqlOptions
    executor = OutOfProcess
    name = "sql"
    description = "Runs one SQL statement and returns its rows."
    usage = (
        "<sql> one statement </sql> runs it and shows its rows.\n"
        "<solution> one statement </solution> is the answer and ends the task."
    )
    format = RawFormat()
    stop_strings = (QUERY[1], SOLUTION[1])
    stateful = True
    run_limit = 5.0

    def __init__(self, config: SqlOptions, sandbox: SandboxConfig | None = None) -> None:
        super().__init__(config)
        self._backend = _backend(config, sandbox or SandboxConfig())
        self._run_solution = config.run_solution or config.solution_json

    async def start(self) -> None:
        await self._backend.start()
        self.isolation = self._backend.isolation

    async def stop(self) -> None:
        await self._backend.stop()

    def figures(self) -> Mapping[str, float]:
        return self._backend.figures()

    async def open(self, session: SessionInfo) -> Any:
        return await self._backend.open(session)

    async def close(self, state: Any) -> None:
        await self._backend.close(state)

    def make_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        made = super().make_arguments(arguments)
        made["statement"] = find_statement(made[RAW])
        return made

    async def run(self, state: Any, call: Call, cancellation: Cancellation) -> Result:
        statement = call.arguments["statement"]
        if statement.final and not self._run_solution:
            return Result(done=True)
        answer = await self._backend.run(
            state,
            statement.sql,
            call.run_limit,
            cancellation,
            as_json=statement.final and self.config.solution_json,
        )
        return as_result(answer, call, final=statement.final)


def _backend(options: SqlOptions, sandbox: SandboxConfig) -> SqlBackend:
    if options.databases is not None:
        templates = Templates(
            options.databases, key=options.key, cache_bytes=options.cache_mib * MIB
        )
        return SqliteBackend(
            templates,
            sandbox,
            writable=options.writable,
            rows=options.rows,
            output_bytes=options.output_kib * 1024,
        )
    dsn = options.dsn or SecretStr("")
    return PostgresBackend(
        dsn.get_secret_value(),
        key=options.key,
        writable=options.writable,
        rows=options.rows,
        output_bytes=options.output_kib * 1024,
        connections=options.connections,
    )


def as_result(answer: SqlAnswer, call: Call, *, final: bool) -> Result:
    """Observation: the rows or the error, and the number of turns left."""
    text = answer.text if final else f"{answer.text}\n{turns_left(call.turns_left)}"
    error = None
    if answer.kind is not ToolErrorKind.NONE:
        error = ToolError(kind=answer.kind, message=answer.text, session_lost=answer.lost)
    return Result(observation=(Text(text=text),), done=final, error=error, truncated=answer.cut)


def turns_left(turns: int) -> str:
    """Reminder of VerlTool's SQL task. The turn for the answer does not count."""
    if turns == 0:
        return "No turns left: give your <solution> now."
    return f"{turns} turn{'' if turns == 1 else 's'} left."
