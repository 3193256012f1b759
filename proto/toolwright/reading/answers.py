"""Place of an answer in a text, and its canonical form. Pure, linear in the text's length.

`last_box`, `last_block`, `final_answer`, `hash_number`   where it stands
`words`                                                    canonical words of an open question
`choice`, `lone_letter`                                    the letter of a multiple choice
`normal_form`                                              Unicode's normal form C
`expressions`, the module beside this one, has the canonical form of mathematics.

Every text is compared in Unicode's normal form C. Whether two forms are the same answer is for the
caller: `tasks.judging` has the comparisons.
"""

from __future__ import annotations

import re
import string
import unicodedata

LONGEST = 10_000
"""Longest part of a text that `words` reads, in characters."""
LONGEST_CHOICE = 4000
"""Longest part of a text that `choice` reads, in characters, from the end: a choice comes last."""
LONGEST_LINE = 1000
"""Longest part of a line that `hash_number` reads, in characters."""
MOST_COMBINING = 30
"""Most combining characters in a row in a text (Unicode's annex 15, stream-safe text). Sorting a
longer row takes quadratic time."""

_BRACES = re.compile(
    r"\\(?:boxed|fbox)(?![A-Za-z])\s{0,8}"
    r"(?:\{|(?P<bare>[-+]?[0-9](?:[0-9.,/]{0,100}[0-9])?(?![\w{])|[A-HJ-Z](?![\w'])(?! [a-z])))"
    r"|\\.|[{}]",
    re.DOTALL,
)
_NUMBER = re.compile(
    r"[-+]?\$?[-+]?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)(?:/[0-9]+|[eE][-+]?[0-9]{1,3}\b)?"
)

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARKS = str.maketrans("", "", string.punctuation + "\u2018\u2019\u00b4")
"""ASCII punctuation, and the quotation marks that TriviaQA's own scorer takes for it."""

_WRAPPED = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|textnormal|mathrm|mathbf|mathit|mathsf|mathtt"
    r"|mbox|hbox|emph|underline|operatorname)\s{0,4}\{([^{}]{0,400})\}"
)
_DELIMITERS = re.compile(r"(?<!\\)\\[()\[\]]|\$")
_ALONE = re.compile(r"[\s(\[{*_\"'`]{0,16}([A-Za-z])[\s)\]}*_\"'`.:,]{0,16}")
_FIRST = re.compile(
    r"[\s(\[*_]{0,16}(?:([A-Za-z])[)\].:](?=[\s*_]|$)"
    r"|([A-Z])[)\]*_]{0,4}\s{1,4}[-\u2013\u2014]{1,2}\s)"
)
_LETTER = (
    r"(?:[(\[]([A-Za-z])[)\]]|([B-HJ-Z])(?![\w'\u2019])(?!\s{1,4}(?:is|was|seems|looks|would|can)\b)"
    r"|([AI])(?![\w'\u2019])(?!\s(?!because\b|since\b)[a-z]))"
)
_NAMED = re.compile(
    r"(?i:\b(?:answer|choose|pick|select)\b)(?i:\s{1,4}(?:is|must be|should be|would be))?"
    r"[\s:*_=]{0,8}(?i:(?:the\s{1,4})?(?:option|choice|letter)\s{1,4})?" + _LETTER
    + r"|(?:[(\[]([A-Za-z])[)\]]|\b([A-Z]))[*_]{0,4}\s{1,4}is\s{1,4}"
    r"(?:(?:the|most|best|only|therefore|clearly|indeed)\s{1,4}){0,3}"
    r"(?:correct\b|(?:right|true|best)(?=\s{0,2}(?:[.,;:!*_)\]]|$))"
    r"|(?:(?:right|best)\s{1,2})?(?:answer|choice|option)\b)(?![-\w]|\s{0,4}\?)"
)  # fmt: skip
_OPTION = re.compile(
    r"(?i:\b(?:option|choice)\b)[\s:*_=]{0,8}"
    r"(?:[(\[]([A-Za-z])[)\]]|([A-Z])(?![\w'\u2019])(?!\s[a-z]))"
)


def last_box(text: str, *, empty: bool = True) -> str | None:
    r"""Content of the last complete `\boxed{...}` or `\fbox{...}`, by where it begins, or None.

    Braces inside are counted, escaped ones are not. A box without braces holds one number or one
    capital letter: `\boxed 42`. empty: a box without content counts.
    """
    begun: list[int | None] = []
    """Where the content of each open brace begins; None for a brace that opens no box."""
    best, found = -1, None
    for token in _BRACES.finditer(text):
        mark = token[0]
        start, inside = None, token["bare"]
        if inside is not None:
            start = token.start("bare")
        elif mark == "}":
            start = begun.pop() if begun else None
            inside = "" if start is None else text[start : token.start()].strip()
        elif mark == "{":
            begun.append(None)
        elif mark[-1] == "{" and len(mark) > 2:
            begun.append(token.end())
        if start is not None and start > best and (inside or empty):
            best, found = start, inside
    return found


def said(text: str) -> str:
    """Content of the last box that has one, or the whole text."""
    return last_box(text, empty=False) or text


def last_block(text: str, tag: str = "answer") -> str | None:
    """Content of the last complete `<tag>...</tag>`, without the blanks around it, or None. A block
    ends at the first closing tag after its opening."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    last = text.rfind(closing)
    start = text.rfind(opening, 0, last) if last >= 0 else -1
    if start < 0:
        return None
    start += len(opening)
    return text[start : text.find(closing, start)].strip()


def hash_number(text: str) -> str | None:
    """Number after the last ####, as GSM8K writes answers, or None. Thousands' commas and currency
    signs are left out."""
    at = text.rfind("####")
    if at < 0:
        return None
    line = text[at + 4 : at + 4 + LONGEST_LINE].strip().partition("\n")[0].replace("\u2212", "-")
    number = _NUMBER.search(line)
    return number[0].replace(",", "").replace("$", "").lstrip("+") if number else None


def final_answer(text: str, tag: str = "answer") -> str | None:
    """The last box of the last answer block; the whole block if it has no box; the last box of the
    text if it has no block; else None."""
    block = last_block(text, tag)
    box = last_box(text if block is None else block)
    return block if box is None else box


def words(text: str) -> str:
    """Lower case, without punctuation and articles, single blanks; "" for a blank text alone.

    Punctuation leaves no blank: "twenty-one" becomes "twentyone" (SQuAD's and Search-R1's exact
    match). Articles stay if nothing else would be left, and so does punctuation.
    """
    return bare_words(text) or _spaced(_lowered(text).translate(_MARKS)) or _spaced(_lowered(text))


def bare_words(text: str) -> str:
    """As `words`; "" for a text that has only articles and punctuation."""
    return _spaced(_ARTICLES.sub(" ", _lowered(text).translate(_MARKS)))


def choice(text: str, letters: str = "ABCDEFGHIJ") -> str | None:
    """Letter that a text chooses, in upper case, or None if it chooses none of `letters`.

    A box is the whole answer. Without a box, a letter counts where it cannot be a word: alone,
    after "answer" or before "is correct", after "option" or "choice", or at the beginning before a
    mark, in this order. The last of a kind counts. "A cat" chooses nothing.
    """
    text = said(text)
    end = _unwrapped(text[-LONGEST_CHOICE:])
    first = _FIRST.match(end) if len(text) <= LONGEST_CHOICE else None  # else the start is cut off
    named = (*_from_the_end(_NAMED, end), *_from_the_end(_OPTION, end))
    for found in (_ALONE.fullmatch(end), *named, first):
        if found is not None and (letter := _letter(found)) in letters:
            return letter
    return None


def lone_letter(text: str) -> str | None:
    """Letter of a text that is nothing else, however it is wrapped, in upper case, or None."""
    found = _ALONE.fullmatch(_unwrapped(said(text)[:LONGEST_CHOICE]))
    return None if found is None else _letter(found)


def normal_form(text: str) -> str:
    """The text in Unicode's normal form C; unchanged if it has more combining characters in a row
    than a language writes."""
    if text.isascii():
        return text
    row = 0
    for character in text:
        row = row + 1 if unicodedata.combining(character) else 0
        if row > MOST_COMBINING:
            return text
    return unicodedata.normalize("NFC", text)


def unwrapped(text: str) -> str:
    r"""The text without LaTeX's wrappers of words: `\text{(B)}` is (B). Two layers are removed."""
    return _WRAPPED.sub(r"\1", _WRAPPED.sub(r"\1", text))


def _unwrapped(text: str) -> str:
    return _DELIMITERS.sub(" ", unwrapped(normal_form(text)))


def _letter(found: re.Match[str]) -> str:
    return next(letter for letter in found.groups() if letter).upper()


def _from_the_end(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    return list(pattern.finditer(text))[::-1]


def _lowered(text: str) -> str:
    return normal_form(text[:LONGEST].lower())


def _spaced(text: str) -> str:
    return " ".join(text.split())
