"""The PostgreSQL roles of sessions, and the privileges that no such role may have.

    host=db user=policy_{1-32} dbname=shop     32 roles, of which a session has one to itself

Roles are PostgreSQL's own wall between sessions: one role reads the statements that run under it
(`pg_stat_activity`), and cancels them. So no two sessions share one at the same time. The server
sees to that, for all workers and services together: each role is made with CONNECTION LIMIT 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

_RANGE = re.compile(r"\{(\d{1,6})-(\d{1,6})\}")
MAKE = (
    "CREATE ROLE policy_1 LOGIN CONNECTION LIMIT 1; GRANT SELECT ON ALL TABLES IN SCHEMA public "
    "TO policy_1 (docs/tools/shipped/sql.md makes many)"
)


def dsns(template: str) -> list[str]:
    """One for each role; the template itself where it names no range."""
    found = _RANGE.search(template)
    if found is None:
        return [template]
    numbers = range(int(found[1]), int(found[2]) + 1)
    return [f"{template[: found.start()]}{n}{template[found.end() :]}" for n in numbers]


def role_of(dsn: str) -> str | None:
    """None where the DSN leaves it to the environment. psycopg.Error where it is no DSN."""
    user = conninfo_to_dict(dsn).get("user")
    return None if user is None else str(user)


async def faults(
    connection: psycopg.AsyncConnection[tuple[Any, ...]], roles: Sequence[str]
) -> list[str]:
    """Faults of the sessions' roles in the connection's database; [] = no fault."""
    rows = await (await connection.execute(_FAULTS, {"roles": list(roles)})).fetchall()
    return [str(row[0]) for row in rows]


_FAULTS = """
WITH served AS (SELECT * FROM pg_roles WHERE rolname = ANY (%(roles)s))

SELECT format('there is no role %%s', named) FROM unnest(%(roles)s::text[]) AS named
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = named)

UNION ALL
SELECT format('role %%s lacks CONNECTION LIMIT 1, so that sessions would share it', rolname)
FROM served WHERE rolconnlimit <> 1

UNION ALL SELECT format('role %%s has SUPERUSER, CREATEROLE or REPLICATION', rolname)
FROM served WHERE rolsuper OR rolcreaterole OR rolreplication

UNION ALL SELECT format('role %%s is a member of %%s', served.rolname, other.rolname)
FROM served, pg_roles AS other
WHERE served.oid <> other.oid AND pg_has_role(served.oid, other.oid, 'MEMBER')
    AND (other.oid < 16384 OR other.rolsuper OR other.rolname IN (SELECT rolname FROM served))
    AND other.rolname NOT IN ('pg_write_all_data', 'pg_database_owner')

UNION ALL SELECT format('role %%s may read %%s, where passwords are', rolname, secret)
FROM served, (VALUES ('pg_authid', 'rolpassword'), ('pg_shadow', 'passwd'),
    ('pg_user_mapping', 'umoptions'), ('pg_subscription', 'subconninfo')) AS secrets (secret, kept)
WHERE has_column_privilege(served.oid, 'pg_catalog.' || secret, kept, 'SELECT')

UNION ALL SELECT format('role %%s may call %%s', served.rolname, p.oid::regprocedure)
FROM served, pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
WHERE has_function_privilege(served.oid, p.oid, 'EXECUTE') AND (
    p.pronamespace = 'pg_catalog'::regnamespace AND p.proname IN
        ('pg_read_file', 'pg_read_binary_file', 'pg_ls_dir', 'lo_import', 'lo_export',
         'pg_reload_conf', 'pg_rotate_logfile', 'pg_switch_wal', 'pg_promote')
    OR NOT l.lanpltrusted AND l.lanname NOT IN ('internal', 'c')
    OR EXISTS (SELECT FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
        WHERE d.objid = p.oid AND d.deptype = 'e' AND e.extname = 'dblink'))

UNION ALL SELECT 'pg_stat_statements keeps what earlier sessions of a role ran'
FROM pg_extension WHERE extname = 'pg_stat_statements'
    AND coalesce(current_setting('pg_stat_statements.track', true), 'none') <> 'none'

LIMIT 5
"""
