"""How text becomes the words of a BM25 index.

Invariants
- A passage and a query are split by the same rules, so a query finds the passage that it quotes.
- Text is compared in Unicode's form NFKC and in lower case.
- A word may have one letter. Writing without spaces between words (Chinese, Japanese, Thai, ...)
  and Korean yield every character and every pair of neighbours; a query needs only the pairs.
- Time is linear in the length of the text.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache, partial
from itertools import chain

VERSION = 2
"""Version of these rules, which an index keeps. Version 1 dropped one-letter words; its indexes
name no version."""

_ENDING = re.compile(r"(?<=\w)['\u2019][sStTdDmM]\b")
"""Ending of "dog's" and "don't", which is not a word."""
_LETTER_A = re.compile(r"(?<=[^\W_][ -])A\b")
_NAME_A = "a_"
"""The word for an upper-case A behind another word, as in "vitamin A": the article is left out."""
_UNSPACED = (
    "\u3005\u3007"  # marks of Chinese and Japanese that repeat a character and mean zero
    "\u3041-\u309f\u30a0-\u30ff\u31f0-\u31ff"  # hiragana, katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
    "\uac00-\ud7a3"  # Korean: spaces part phrases, and particles hang on to words
    "\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
)


_PLAIN = re.compile(r"\w+")
_RUN = re.compile(f"[{_UNSPACED}]")


def split(text: str, *, query: bool = False) -> list[str]:
    """The words of a passage, or of a query, in order."""
    text = _ENDING.sub(" ", unicodedata.normalize("NFKC", text))
    text = _LETTER_A.sub(_NAME_A, text).lower()
    if text.isascii() or not _special().search(text):
        return _PLAIN.findall(text)
    found = _mixed().findall(text)
    if _RUN.search(text) is None:
        return found
    return list(chain.from_iterable(map(partial(_pieces, query=query), found)))


def _pieces(run: str, query: bool) -> Iterable[str]:
    if not _RUN.match(run):
        return (run,)
    pairs = [run[at : at + 2] for at in range(len(run) - 1)]
    return pairs if query and pairs else [*run, *pairs]


@cache
def _special() -> re.Pattern[str]:
    """What `_PLAIN` does not split right."""
    return re.compile(f"[{_UNSPACED}{_marks()}]")


@cache
def _mixed() -> re.Pattern[str]:
    letters = rf"[^\W{_UNSPACED}]"
    return re.compile(rf"{letters}+(?:[{_marks()}]+{letters}*)*|[{_UNSPACED}]+")


def _marks() -> str:
    """Marks that belong to the letter before them, as in Hindi: no word ends at one."""
    return "".join(
        re.escape(character)
        for character in map(chr, range(sys.maxunicode + 1 >> 4))
        if unicodedata.category(character) in ("Mn", "Mc") and not _RUN.match(character)
    )
