"""Untrusted text in a page or a terminal: names of folders, metrics and suites, lines of logs, text
that a policy wrote."""

from __future__ import annotations

import unicodedata
from html import escape


def text(value: str) -> str:
    """The text escaped, also for attributes. Characters that XML cannot hold are replaced: control
    characters and lone surrogates."""
    return escape(fit(value))


def fit(value: str) -> str:
    """The text, not escaped, with characters that XML cannot hold replaced."""
    return "".join("\N{REPLACEMENT CHARACTER}" if _unfit(c) else c for c in value)


def plain(value: str, keep: str = "\n\t") -> str:
    """The text for a terminal, with control characters replaced. keep: control characters that
    stay; "" = one line."""
    return "".join(
        c if c.isprintable() or c in keep else "\N{REPLACEMENT CHARACTER}" for c in value
    )


def _unfit(character: str) -> bool:
    if unicodedata.category(character) in ("Cc", "Cs"):
        return character not in "\t\n"
    return character in "\ufffe\uffff"
