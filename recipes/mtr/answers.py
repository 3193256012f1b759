"""The two answers of a trace: the final one, and the one that its reasoning came to. Pure.

The paper scores an intermediate answer "from reasoning steps" and does not say which. Here it is
the last place in the policy's own words, without its calls, before the last <answer>, that says
`\\boxed{...}`, "answer is ..." or "answer: ...", the last two up to the end of the sentence, and
names something: "Now I give the final answer:" takes back nothing that was said before it. A trace
without a final answer has none: it has not come to an end.

Everything takes time linear in the text, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolwright.reading.actions import Tags, calls_in
from toolwright.reading.answers import last_block, last_box

ANSWER, CALL = "answer", "tool_call"
"""Tags."""
LONGEST = 1000
"""Characters of a sentence that are looked at."""

_SAID = re.compile(r"\banswer[ \t]{0,4}(?:is\b[ \t]{0,4}:?|:)", re.IGNORECASE)
_END = re.compile(r"[\r\n<!?]|\\boxed\b|\.(?![^\s<\"')*\]])")
"""End of a sentence: a line, a tag, a mark, a box, a full stop before a blank or before what
closes."""
_TITLE = re.compile(r"\b(?:St|Mt|Dr|Mr|Mrs|Ms|Jr|Sr|Prof|Gen|vs)$")
_NUMBER = re.compile(r"\bNo$")
_INITIAL = re.compile(r"\b[^\W\d_]$")
_WORD = re.compile(r"[ \t]{1,4}([^\W\d_]{1,16})")
_DIGIT = re.compile(r"[ \t]{1,4}[0-9]")
_BEGINS = frozenset({
    "A", "An", "And", "As", "Because", "Both", "But", "He", "Hence", "Her", "His", "However",
    "I", "In", "It", "Its", "My", "Next", "No", "Now", "She", "Since", "So", "That", "The",
    "Their", "Then", "There", "Therefore", "These", "They", "This", "Thus", "We", "Yes", "You",
})  # fmt: skip
"""Words that begin a sentence and are no name after an initial."""
_AROUND = " \t\"'*_`\u201c\u201d\u2018\u2019"


def final_answer(last_text: str) -> str | None:
    """What the last action of an answered trace says in its last answer block; None without."""
    return last_block(last_text, ANSWER)


def intermediate_answer(texts: Sequence[str]) -> str | None:
    """Answer that the reasoning of an answered trace names, by its actions; None without one."""
    if not texts or final_answer(texts[-1]) is None:
        return None
    *before, last = texts
    reasoning = [*before, last[: last.rfind(f"<{ANSWER}>", 0, last.rfind(f"</{ANSWER}>"))]]
    return said_in("\n".join(map(without_calls, reasoning)))


def said_in(text: str) -> str | None:
    """The last answer that a text of reasoning names."""
    end = len(text)
    for found in reversed(list(_SAID.finditer(text))):
        said = text[found.end() : end]
        named = last_box(said, empty=False) or _sentence(said[:LONGEST])
        if named:
            return named
        end = found.start()
    return last_box(text, empty=False)


def without_calls(text: str) -> str:
    """An action without what stands in its calls; one that never closes takes the rest."""
    tags = Tags(f"<{CALL}>", f"</{CALL}>")
    kept = []
    at = 0
    for call in calls_in(text, tags):
        if call.start >= 0:
            kept.append(text[at : call.start])
            at = call.end
    return "".join([*kept, text[at:].partition(tags.open)[0]])


def _sentence(text: str) -> str | None:
    """Up to its end; None where nothing stands there."""
    text = text.lstrip(_AROUND)
    for end in _END.finditer(text):
        if end[0] != "." or not _goes_on(text, end.start()):
            text = text[: end.start()]
            break
    return text.strip(_AROUND) or None


def _goes_on(text: str, stop: int) -> bool:
    """A full stop ends no sentence after a title, a "No" before a number, and an initial: a letter
    before a name. V after a word is a number, as in Henry V."""
    start = max(0, stop - 8)
    if _TITLE.search(text, start, stop):
        return True
    if _NUMBER.search(text, start, stop):
        return _DIGIT.match(text, stop + 1) is not None
    follows = _WORD.match(text, stop + 1)
    if follows is None or not _INITIAL.search(text, start, stop):
        return False
    letter, word = text[stop - 1], follows[1]
    if not letter.isupper() or not word[0].isupper() or word in _BEGINS:
        return False
    before = text[start : stop - 1].rstrip(" \t")
    return letter not in "IVX" or not before[-1:].isalnum()
