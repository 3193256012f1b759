"""A PostgreSQL for tests. A machine without one fails them with the sentence that mends it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

MOST_POLICIES = 64
POLICIES = "\n".join(
    ("CREATE ROLE policy", *(
        f"CREATE ROLE policy_{n} LOGIN CONNECTION LIMIT 1 IN ROLE policy"
        for n in range(1, MOST_POLICIES + 1)
    ))
)  # fmt: skip
"""Roles for sessions; what is granted to `policy` all of them have."""
DATABASE_ACCOUNTS = ("postgres", "games")


@contextmanager
def postgres(statements: str) -> Iterator[PostgresServer]:
    """A server that has run `statements`, one a line, as its administrator."""
    running = PostgresServer(statements)
    try:
        yield running
    finally:
        running.crash()
        shutil.rmtree(running.folder)


class PostgresServer:
    """A PostgreSQL of the tests' own, on a Unix socket in a temporary folder."""

    def __init__(self, statements: str) -> None:
        """`statements`: what its administrator runs first, one a line."""
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not found:
            pytest.fail("these tests need PostgreSQL: apt-get install postgresql")
        self.bin = found[-1].parent
        self.folder = Path(tempfile.mkdtemp(prefix="toolwright-pg-"))
        self.account: dict[str, Any] = {}
        if os.geteuid() == 0:  # which PostgreSQL refuses to run as
            known = {account.pw_name: account for account in pwd.getpwall()}
            account = next(known[name] for name in DATABASE_ACCOUNTS if name in known)
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self.account = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self.data = self.folder / "data"
        self.run("initdb", "-D", self.data, "-U", "admin", "-A", "trust", "--no-sync", "-E", "UTF8")
        self.start()
        with psycopg.connect(self.dsn("admin"), autocommit=True) as connection:
            for statement in statements.strip().split("\n"):
                connection.execute(statement.encode())

    def run(self, program: str, *arguments: object) -> None:
        subprocess.run(
            [self.bin / program, *map(str, arguments)],
            check=True,
            capture_output=True,
            cwd=self.folder,
            env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]},
            **self.account,
        )

    def start(self) -> None:
        options = f"-c listen_addresses= -k {self.folder} -c fsync=off -c shared_buffers=16MB"
        log = self.folder / "log"
        self.run("pg_ctl", "-D", self.data, "-l", log, "-w", "-o", options, "start")

    def crash(self) -> None:
        self.run("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop")

    def dsn(self, user: str) -> str:
        return f"host={self.folder} user={user} dbname=postgres"

    def policies(self, count: int = 8) -> str:
        """The DSN of so many of the roles that POLICIES makes."""
        return self.dsn(f"policy_{{1-{count}}}")

    def ask(self, sql: str) -> Any:
        """One value, as the administrator sees it."""
        with psycopg.connect(self.dsn("admin"), autocommit=True) as connection:
            row = connection.execute(sql.encode()).fetchone()
        return None if row is None else row[0]

    def tell(self, sql: str, database: str = "postgres") -> None:
        """One command of the administrator's."""
        dsn = self.dsn("admin").replace("dbname=postgres", f"dbname={database}")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(sql.encode())

    def sessions(self) -> int:
        """Connections of the tool."""
        return int(
            self.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'toolwright'")
        )
