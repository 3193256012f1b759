"""Answers that choose one of several: a letter, or the text that stands beside it. Pure.

A letter is read where it cannot be a word: alone, after "answer", "option" or "choice", or at the
beginning with a mark behind it, in this order. What is named last counts. "A cat" chooses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tasks.judging.words import normalise

LONGEST = 4000
"""Characters that are looked at, from the end: a choice comes last."""
_ALONE = re.compile(r"[\s(\[{*_\"'`$]{0,16}([A-Za-z])[\s)\]}*_\"'`$.:,]{0,16}")
_FIRST = re.compile(r"[\s(\[*_]{0,16}([A-Za-z])[)\].:](?=[\s*_]|$)")
_BEHIND = (
    r"(?i:\s{1,4}is)?[\s:*_=]{0,8}(?i:option\s{1,4}|choice\s{1,4})?"
    r"[(\[]?([A-Z])(?![\w'\u2019])(?!\s[a-z])"
)
_ANSWER = re.compile(r"(?i:\banswer\b)" + _BEHIND)
_OPTION = re.compile(r"(?i:\b(?:option|choice)\b)" + _BEHIND)


def choice(text: str, letters: str = "ABCDEFGHIJ") -> str | None:
    """The letter that a text chooses, in upper case; None where it chooses none of `letters`."""
    end = text[-LONGEST:]
    first = _FIRST.match(text) if len(text) <= LONGEST else None  # else its beginning is cut off
    named = (*_from_the_end(_ANSWER, end), *_from_the_end(_OPTION, end))
    for found in (_ALONE.fullmatch(end), *named, first):
        if found is not None and (letter := found[1].upper()) in letters:
            return letter
    return None


def same_choice(
    answer: str, golds: Iterable[str], options: Mapping[str, str] | None = None
) -> bool:
    """Whether an answer chooses what one of the right ones does.

    golds: letters or texts. options: text by letter, if known; then a letter and the text beside it
    are the same choice.
    """
    options = {letter.upper(): text for letter, text in (options or {}).items()}
    letters = "".join(options) or "ABCDEFGHIJ"
    return any(_same(answer, gold, options, letters) for gold in golds)


def _same(answer: str, gold: str, options: Mapping[str, str], letters: str) -> bool:
    right = choice(gold, letters) if len(gold.strip(" ().[]")) == 1 else None
    chosen = choice(answer, letters)
    said = normalise(answer)
    if right is not None:
        if chosen is not None:
            return chosen == right
        return bool(said) and right in options and said == normalise(options[right])
    meant = normalise(gold)
    if not meant:
        return False
    return said == meant or (chosen is not None and normalise(options.get(chosen, "")) == meant)


def _from_the_end(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    return list(pattern.finditer(text))[::-1]
