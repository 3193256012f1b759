"""Names that a service has to tell apart, and that one which is careless takes for one; pure."""

from __future__ import annotations

LONG = 300
"""Characters, beyond what a file name or an indexed column holds."""


def near_misses(name: str) -> tuple[str, ...]:
    """Names unlike `name` and each other: in case, by a prefix, by blanks, by an escape, by how a
    letter is composed, by a NUL, and only after their first 300 characters."""
    return (
        name + "\u00e9",
        name + "e\u0301",
        name + "a",
        name + "A",
        name,
        name + " ",
        name + "/",
        name + "%2F",
        name + "\x00",
        name + "\x00a",
        name + "_",
        name + "%",
        name + "-" * LONG + "a",
        name + "-" * LONG + "b",
    )
