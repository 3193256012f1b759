"""The verdict of a model that judges an answer: 1 for right, 0 for wrong. Pure, linear."""

from __future__ import annotations

import re

from toolwright.reading.thoughts import after_thoughts, ends_in_thought

LONGEST_LINE = 200
"""Longest last line that can be a verdict, in characters."""

_VERDICT = re.compile(
    r"[\s*_`\"'#>(\[]*"
    r"(?:(?:final |my |the )?(?:verdict|score|grade|rating|judge?ment|answer|result)"
    r"(?: is)?[\s*_]*[:=]?[\s*_`\"'(\[]*)?"
    r"(?:\\boxed\{\s?([01])\s?\}|([01]))[\s*_`\"')\].!]*",
    re.IGNORECASE,
)


def verdict(reply: str, *, cut: bool = False) -> int | None:
    """0 or 1 as the last line of a reply says it, thoughts left out.

    The last line holds the verdict alone: a label such as "Verdict:", marks of emphasis and a box
    may stand around it. Returns None for any other line and for a thought without an end. Also for
    a reply that was `cut` at its token limit: its last line is not the judge's last.
    """
    if cut or ends_in_thought(reply):
        return None
    last = after_thoughts(reply).rpartition("\n")[2].strip()
    found = _VERDICT.fullmatch(last) if len(last) <= LONGEST_LINE else None
    return int(found[1] or found[2]) if found else None
