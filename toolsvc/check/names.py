"""Names that a careless service confuses; pure."""

from __future__ import annotations

LONG = 300
"""Number of characters, more than a file name or an indexed column holds."""


def near_misses(name: str) -> tuple[str, ...]:
    """Names that differ only in case, a prefix, blanks, an escape, the composition of a letter, a
    NUL, or after 300 characters. `name` is one of them."""
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
