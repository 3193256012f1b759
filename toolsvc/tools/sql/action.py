"""Finds the statement in the text of an action; pure.

The last `<sql> ... </sql>` block is a query. Where there is none, the last `<solution> ...
</solution>` is the answer, which ends the trajectory (VerlTool, table 13).
"""

from __future__ import annotations

from typing import NamedTuple

from toolsvc.plugin.actions import InvalidAction, last_block

QUERY = ("<sql>", "</sql>")
SOLUTION = ("<solution>", "</solution>")
LONGEST = 1_000_000
"""Characters of a statement; the sandbox takes messages of 4 MiB."""


class Statement(NamedTuple):
    sql: str
    final: bool
    """It is the answer, not a question."""


def find_statement(action: str) -> Statement:
    """InvalidAction if there is none, or it is empty."""
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
