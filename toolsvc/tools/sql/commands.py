"""Which commands a policy may send to PostgreSQL; pure.

The server takes one command at a time: the extended protocol refuses a second one. It runs the
command in a transaction, and keeps a read-only session from writing. It cannot refuse a command
that ends the transaction, so the first word of the command must be one of those below. That word is
found as PostgreSQL's own scanner would: after blanks, empty statements and comments, which nest.
The rest of the text is not examined.
"""

from __future__ import annotations

import re

_READING = {"select", "with", "values", "table", "explain", "show"}
_CHANGING_ROWS = {"insert", "update", "delete", "merge", "truncate"}
_CHANGING_TABLES = {"create", "alter", "drop", "comment", "analyze", "refresh", "reindex"}
_WRITING = _READING | _CHANGING_ROWS | _CHANGING_TABLES
_BEFORE_A_COMMAND = re.compile(r"[ \t\n\r\f\v;]+|--[^\n\r]*")
_COMMENT_MARK = re.compile(r"/\*|\*/")
_WORD = re.compile(r"[A-Za-z_]+")


def objection(sql: str, *, writable: bool) -> str | None:
    """Why the command must not be sent, or None."""
    word = first_word(sql)
    allowed = _WRITING if writable else _READING
    if word in allowed or word == "(":  # a SELECT in parentheses
        return None
    wanted = ", ".join(sorted(allowed)).upper()
    return f"{word.upper() or 'an empty statement'} is not allowed, only {wanted}"


def first_word(sql: str) -> str:
    """First word of the command, in lower case; a single character if the command does not begin
    with a word, "" without a command."""
    at = 0
    while at < len(sql):
        blank = _BEFORE_A_COMMAND.match(sql, at)
        if blank is not None:
            at = blank.end()
        elif sql.startswith("/*", at):
            at = _end_of_comment(sql, at)
        else:
            word = _WORD.match(sql, at)
            return sql[at].lower() if word is None else word[0].lower()
    return ""


def _end_of_comment(sql: str, at: int) -> int:
    depth = 0
    for mark in _COMMENT_MARK.finditer(sql, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(sql)
