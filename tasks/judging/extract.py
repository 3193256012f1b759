"""The final answer in what a policy wrote. Pure, linear in the length of the text.

Give these functions the response alone: a prompt that shows an example answer would be scored for
it (as the released code of VerlTool and Search-R1 does). `response` has a trajectory's own words.
"""

from __future__ import annotations

import re

from toolwright.text.boxes import last_box
from toolwright.types import Trajectory

_NUMBER = re.compile(r"[-+]?\$?[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)")
LONGEST_LINE = 1000
"""Characters behind #### that are looked at."""


def response(trajectory: Trajectory) -> str:
    """What the policy wrote, its turns a line apart: no prompt and no observation. As reward
    functions get it; a record that was read from a file has no texts."""
    return "\n".join(str(text) for text in trajectory.metadata.get("texts", ()))


def last_block(text: str, tag: str = "answer") -> str | None:
    """What stands in the last complete `<tag>...</tag>`, without the blanks around it; None where
    there is no such block. A block ends at the first closing tag behind its opening."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    last = text.rfind(closing)
    start = text.rfind(opening, 0, last) if last >= 0 else -1
    if start < 0:
        return None
    start += len(opening)
    return text[start : text.find(closing, start)].strip()


def hash_number(text: str) -> str | None:
    """The number behind the last ####, as GSM8K writes answers: without thousands' commas and
    without a currency's sign. None where there is none."""
    at = text.rfind("####")
    if at < 0:
        return None
    line = text[at + 4 : at + 4 + LONGEST_LINE].strip().partition("\n")[0]
    number = _NUMBER.search(line)
    return number[0].replace(",", "").replace("$", "").lstrip("+") if number else None


def final_answer(text: str, tag: str = "answer") -> str | None:
    """The last box of the last answer block; the whole block where it has no box; the last box of
    the text where it has no block; else None."""
    block = last_block(text, tag)
    box = last_box(text if block is None else block)
    return block if box is None else box
