"""What a text puts into a box, as models are asked to write an answer: `\\boxed{42}`.

Pure, linear in the length of the text.
"""

from __future__ import annotations

import re

_BRACES = re.compile(r"\\boxed[ \t]{0,8}\{|\\.|[{}]", re.DOTALL)


def last_box(text: str, *, empty: bool = True) -> str | None:
    """What stands in the last complete `\\boxed{...}`, by where it begins; None where there is
    none. Braces inside are counted, escaped ones are not. empty: one that holds nothing counts."""
    begun: list[int | None] = []
    """Where the content of each open brace begins; None of a brace that is no box."""
    best, found = -1, None
    for token in _BRACES.finditer(text):
        mark = token[0]
        if mark == "}":
            start = begun.pop() if begun else None
            if start is not None and start > best:
                inside = text[start : token.start()].strip()
                if inside or empty:
                    best, found = start, inside
        elif mark == "{":
            begun.append(None)
        elif mark[-1] == "{" and len(mark) > 2:
            begun.append(token.end())
    return found
