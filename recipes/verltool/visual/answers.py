"""Whether an answer about a picture is right: a letter of several, or a text. Pure, by rules.

The answer is the last box of the last turn, and the whole turn where it has none. Options are
read from the question, "(A) a red car" or "B. a bus" at the beginning of a line, so that a letter
and the text beside it are the same choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from tasks.judging.choices import same_choice
from toolwright.reading.answers import final_answer
from toolwright.types import StopReason, Task, Trajectory

LONGEST = 16_000
"""Characters of a question that are looked at for options."""
_OPTION = re.compile(r"(?m)^[ \t]{0,8}(?:\(([A-J])\)|([A-J])[.):])[ \t]{0,8}(\S[^\n]{0,400})")


def answer_of(trajectory: Trajectory) -> str | None:
    """None where the trajectory did not end with an answer: what a thought says before a call
    does not count."""
    if trajectory.stop_reason is not StopReason.ANSWERED:
        return None
    last = str(trajectory.metadata.get("final_text", "")).strip()
    return final_answer(last) or last


def right(answer: str | None, golds: Iterable[str], options: Mapping[str, str]) -> bool:
    """golds: as data sets have them, in a box or without."""
    return answer is not None and same_choice(answer, golds, options)


def options_of(task: Task) -> dict[str, str]:
    """Text by letter, of a question that offers at least two; of a letter that stands twice the
    first."""
    found: dict[str, str] = {}
    for text in _asked(task):
        for option in _OPTION.finditer(text[-LONGEST:]):
            found.setdefault(option[1] or option[2], option[3].strip())
    return found if len(found) > 1 else {}


def _asked(task: Task) -> Iterator[str]:
    yield task.prompt
    for message in task.messages:
        content = message.get("content")
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            yield from (str(part["text"]) for part in content if "text" in part)
