"""Text of strangers in a page or a terminal: names of folders, metrics, suites, lines of logs,
whatever a policy wrote."""

from __future__ import annotations

import unicodedata
from html import escape


def text(value: str) -> str:
    """Escaped, also for attributes, and without what XML cannot hold: control characters and lone
    surrogates."""
    return escape(fit(value))


def fit(value: str) -> str:
    """Not escaped, and without what XML cannot hold."""
    return "".join("\N{REPLACEMENT CHARACTER}" if _unfit(c) else c for c in value)


def plain(value: str, keep: str = "\n\t") -> str:
    """For a terminal: without what would steer it, such as an escape sequence. keep: "" for what
    has to be one line."""
    return "".join(
        c if c.isprintable() or c in keep else "\N{REPLACEMENT CHARACTER}" for c in value
    )


def _unfit(character: str) -> bool:
    if unicodedata.category(character) in ("Cc", "Cs"):
        return character not in "\t\n"
    return character in "\ufffe\uffff"
