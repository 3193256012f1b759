"""Words of tools and the classes to which they belong. Pure, except for reading the word list.

Names and descriptions are untrusted: they are cut, and read in linear time.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import StartupError

OTHER = "Other"
"""The class of tools without a known word; no table may use this name."""
OURS = Path(__file__).with_name("words.toml")
LONGEST_TEXT = 4_000
"""Characters of a name or description that are read."""
LONGEST_WORD = 40
MOST_CLASSES = 50
NAME_WEIGHT = 3
"""Weight of a word in the name; a word in the description weighs 1."""
_TURNS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?![a-z]))[a-z])")
"""Where a word begins without a space: filmTitle, HTTPSearch, but not the B of DBs."""
_WORD = re.compile(r"[^\W_]+")
_NO_PLURALS = frozenset({"news", "series"})
_LOSE_S_ALONE = frozenset({"movie", "cookie", "calorie", "cache"})
"""Words that lose only the s, although their plural looks as if they lost more."""
_HISSES = ("sses", "xes", "zzes", "ches", "shes")
_ENDS_IN_US = frozenset({"bus", "status", "virus", "campus", "bonus", "census", "corpus", "chorus"})
"""Words whose plurals look like those of `use` and `house`."""


def words_of(text: str) -> list[str]:
    """Words in order, in lower case and singular; `filmByTitle` and `film_by_title` are equal."""
    parted = _TURNS.sub(" ", text[:LONGEST_TEXT])
    return [_singular(word[:LONGEST_WORD].lower()) for word in _WORD.findall(parted)]


class Classes:
    """Classes by their words."""

    def __init__(self, words: Mapping[str, Iterable[str]]) -> None:
        self.names = (*words, OTHER)
        self._of: dict[str, list[int]] = {}
        for place, own in enumerate(words.values()):
            for word in {_singular(word) for word in own}:
                self._of.setdefault(word, []).append(place)

    def of(self, name: Iterable[str], description: Iterable[str]) -> int:
        """Position in `names` of the class with the most words of a tool; each counts once."""
        found: Counter[int] = Counter()
        for words, weight in ((set(name), NAME_WEIGHT), (set(description), 1)):
            for word in words:
                for place in self._of.get(word, ()):
                    found[place] += weight
        if not found:
            return len(self.names) - 1
        return min(found, key=lambda place: (-found[place], place))


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """domains: subjects of tools. functions: what tools do. left_out: words that are not
    counted."""

    domains: Classes
    functions: Classes
    left_out: frozenset[str]

    def counted_words(self, words: Iterable[str]) -> set[str]:
        """The words whose frequency is informative."""
        return {
            word
            for word in words
            if len(word) > 2 and not word.isnumeric() and word not in self.left_out
        }


def read_vocabulary(file: Path | None = None) -> Vocabulary:
    """Reads a TOML file in the form of words.toml, which supplies missing tables.

    Raises StartupError with file, table and fix.
    """
    read = _tables(OURS)
    if file is not None:
        theirs = _tables(file)
        if not theirs:
            raise StartupError(f"{file} is empty: write one of the tables {', '.join(read)}")
        read |= theirs
    return Vocabulary(
        domains=Classes(read["domains"]),
        functions=Classes(read["functions"]),
        left_out=frozenset(map(_singular, read["left_out"])),
    )


def _tables(file: Path) -> dict[str, Any]:
    try:
        read = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError as error:
        raise StartupError(f"--domains: no file {file}: correct the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StartupError(f"{file} is not TOML: {error}") from error
    for name, table in read.items():
        if name == "left_out":
            _check_words(f"{file}: left_out", table)
        elif name in ("domains", "functions"):
            _check_classes(f"{file}: [{name}]", table)
        else:
            raise StartupError(
                f"{file}: unknown table {name[:80]!r}; known: domains, functions, left_out"
            )
    return read


def _check_classes(where: str, table: Any) -> None:
    if not isinstance(table, dict) or not table:
        raise StartupError(f'{where} is not a table of lists: write Film = ["film", "movie"]')
    if len(table) > MOST_CLASSES:
        raise StartupError(f"{where} has {len(table)} classes: at most {MOST_CLASSES} are allowed")
    for name, words in table.items():
        if name == OTHER:
            raise StartupError(f"{where} {OTHER} is the class of all other tools: leave it out")
        _check_words(f"{where} {name[:80]!r}", words)


def _check_words(where: str, words: Any) -> None:
    if not isinstance(words, list) or not words:
        raise StartupError(f'{where} is not a list of words: write ["film", "movie"]')
    for word in words:
        if not isinstance(word, str) or _WORD.fullmatch(word) is None or word != word.lower():
            raise StartupError(
                f"{where}: {str(word)[:80]!r} is not a single word in lower case: write one, as "
                "tools "
                "are read word by word"
            )


def _singular(word: str) -> str:
    """A rough singular (movies, movie); what matters is that both sides are treated alike."""
    if len(word) < 4 or word in _NO_PLURALS or word.endswith(("ss", "us", "is")):
        return word
    less = word.removesuffix("s")
    if less in _LOSE_S_ALONE:
        return less
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(_HISSES) or word.removesuffix("es") in _ENDS_IN_US:
        return word[:-2]
    return less
