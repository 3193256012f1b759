"""The two answers of a trace: the final one, and the one that its reasoning came to. Pure.

The paper scores an intermediate answer "from reasoning steps" and does not say which (A-22). Here
it is the last place in the policy's own words, calls apart, before the last <answer>, that says
`\\boxed{...}`, "answer is ..." or "answer: ...", the last two up to the end of the sentence. A
trace without a final answer has none: it has not come to an end.

Everything takes time linear in the text, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.judging.extract import last_block
from toolwright.boxes import last_box

ANSWER, CALL = "answer", "tool_call"
"""Tags."""
LONGEST = 1000
"""Characters of a sentence that are looked at."""

_SAID = re.compile(r"\banswer[ \t]{0,4}(?:is\b[ \t]{0,4}:?|:)", re.IGNORECASE)
_END = re.compile(r"[\r\n<!?]|\.(?![^\s<\"')*\]])")
"""Of a sentence: a line, a tag, a mark, a full stop before a blank or before what closes."""
_SHORT = re.compile(r"(?:\b[A-Z]|\b(?:St|Mt|Dr|Mr|Mrs|Ms|Jr|Sr|Prof|Gen|No|vs))$")
"""What a full stop behind it does not end: an initial, a title."""
_AROUND = " \t\"'*_`\u201c\u201d\u2018\u2019"


def final_answer(last_text: str) -> str | None:
    """What the last action of an answered trace says in its last answer block; None without."""
    return last_block(last_text, ANSWER)


def intermediate_answer(texts: Sequence[str]) -> str | None:
    """Of the actions of an answered trace; None where its reasoning names no answer."""
    if not texts or final_answer(texts[-1]) is None:
        return None
    *before, last = texts
    reasoning = [*before, last[: last.rfind(f"<{ANSWER}>", 0, last.rfind(f"</{ANSWER}>"))]]
    return said_in("\n".join(map(without_calls, reasoning)))


def said_in(text: str) -> str | None:
    """The last answer that a text of reasoning names."""
    ends = [found.end() for found in _SAID.finditer(text)]
    if not ends:
        return last_box(text)
    boxed = last_box(text[ends[-1] :])
    if boxed is not None:
        return boxed
    return _sentence(text[ends[-1] : ends[-1] + LONGEST]) or last_box(text)


def without_calls(text: str) -> str:
    """An action without what stands in its calls; one that never closes takes the rest."""
    kept = []
    opening, closing = f"<{CALL}>", f"</{CALL}>"
    start = 0
    while (opened := text.find(opening, start)) >= 0:
        kept.append(text[start:opened])
        closed = text.find(closing, opened)
        if closed < 0:
            return "".join(kept)
        start = closed + len(closing)
    return "".join([*kept, text[start:]])


def _sentence(text: str) -> str | None:
    """Up to its end; None where nothing stands there."""
    text = text.lstrip(_AROUND)
    for end in _END.finditer(text):
        if end[0] != "." or not _SHORT.search(text, max(0, end.start() - 8), end.start()):
            text = text[: end.start()]
            break
    return text.strip(_AROUND) or None
