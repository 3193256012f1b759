"""Thoughts in what a model writes: tags of chat templates, and replies without thoughts. Pure."""

from __future__ import annotations

import re

from toolwright.reading.action_ends import Tags

KNOWN = (Tags("<think>", "</think>"), Tags("[THINK]", "[/THINK]"))
"""Tags of published chat templates."""
_MARK = re.compile(r"<(?P<end>/?)think(?:ing)?>|\[(?P<close>/?)THINK\]", re.IGNORECASE)
"""A tag of a thought, as models write it."""


def thought_of(template: str) -> Tags | None:
    """Tags of the thoughts in a template's source; None without thoughts."""
    return next((tags for tags in KNOWN if tags.close in template), None)


def after_thoughts(reply: str) -> str:
    """A reply after the end of its last thought, without the blanks around it."""
    ends = [mark.end() for mark in _MARK.finditer(reply) if _closes(mark)]
    return reply[ends[-1] if ends else 0 :].strip()


def ends_in_thought(reply: str) -> bool:
    """Whether the last thought of a reply has no end."""
    marks = list(_MARK.finditer(reply))
    return bool(marks) and not _closes(marks[-1])


def _closes(mark: re.Match[str]) -> bool:
    return bool(mark["end"] or mark["close"])
