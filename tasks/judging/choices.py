"""Comparison of answers that choose one of several: a letter, or the text beside it. Pure.

Letters are read by `toolwright.reading.answers.choice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolwright.reading.answers import LONGEST_CHOICE as LONGEST
from toolwright.reading.answers import choice, lone_letter, said, unwrapped, words

__all__ = ["LONGEST", "choice", "same_choice"]


def same_choice(
    answer: str, golds: Iterable[str], options: Mapping[str, str] | None = None
) -> bool:
    """Whether an answer chooses what one of the right ones does.

    golds: letters or texts, in a box or without. options: text by letter, if known; then a letter
    and the text beside it are the same choice.
    """
    options = {letter.upper(): text for letter, text in (options or {}).items()}
    letters = "".join(options) or "ABCDEFGHIJ"
    return any(_same(answer, gold, options, letters) for gold in golds)


def _same(answer: str, gold: str, options: Mapping[str, str], letters: str) -> bool:
    right = lone_letter(gold)
    chosen = choice(answer, letters)
    named = _text(answer)
    if right is not None and right in letters:
        if chosen is not None:
            return chosen == right
        return bool(named) and right in options and named == _text(options[right])
    meant = _text(gold)
    if not meant:
        return False
    return named == meant or (chosen is not None and _text(options.get(chosen, "")) == meant)


def _text(text: str) -> str:
    return words(unwrapped(said(text)))
