"""Texts that lie in a file beside the code: prompts, and the wordings of questions.

    #### agent
    You answer questions with the tools that you are given. In each step think, and then either \\
    call one tool or answer.
    #### item
    - {name}: {description}

A section ends before the line break that precedes the next one. A backslash at the end of a line
joins it with the next line.
"""

from __future__ import annotations

import re
from pathlib import Path

_HEADING = re.compile(r"^#### (.+)\n", re.MULTILINE)


def sections(file: Path) -> dict[str, str]:
    """The texts of a file by their headings, in order. Raises OSError if it cannot be read."""
    _, *parts = _HEADING.split(file.read_text(encoding="utf-8"))
    texts = (text.removesuffix("\n").replace("\\\n", "") for text in parts[1::2])
    return dict(zip(parts[::2], texts, strict=True))
