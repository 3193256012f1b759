"""Labels in the index: which keys a run has, their words, and the rows under each.

Invariants
- Nothing grows with what a stranger writes: beside our own keys MOST_KEYS are looked at, the first
  that come, and a key with more than MOST_WORDS words groups nothing. It is remembered as
  such, and what stood under it goes away.
- A row stands under a word once, with what curves need of it: rows themselves are wide, and a
  hundred thousand of them are not read for a page.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from console.web.index.labels import MASKED, OWN
from console.web.index.types import Entry

MOST_KEYS = 32
MOST_WORDS = 200
SHOWN_KEYS = 8
SHOWN_WORDS = 20
"""On pages: those of most rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelWord:
    """number: in the table `labels`. rows: that stand under it."""

    number: int
    name: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A key that tells rows apart, with its commonest words. more: further ones that it has."""

    key: str
    words: tuple[LabelWord, ...]
    more: int


class LabelStore:
    """The writer's, within its transaction. Keys and words are kept in memory."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.forget()

    def forget(self) -> None:
        """What is in memory, after a transaction that came to nothing."""
        self._keys: dict[str, int] | None = None
        self._spoilt: set[int] = set()
        self._words: dict[int, dict[str, int]] = {}

    def add(self, row: int | None, entry: Entry) -> None:
        """Puts a row under the labels of its entry, also one that was measured again.
        sqlite3.Error."""
        keys = self._read() if self._keys is None else self._keys
        for key, word in entry.labels:
            if (number := self._number(keys, key, word)) is None:
                continue
            values = (number, row, entry.suite, entry.step, entry.reward)
            new = "INSERT OR IGNORE INTO labels VALUES (?, ?, ?, ?, ?)"
            if self._db.execute(new, values).rowcount:
                self._db.execute("UPDATE label_words SET rows = rows + 1 WHERE id = ?", (number,))
            else:
                self._db.execute("REPLACE INTO labels VALUES (?, ?, ?, ?, ?)", values)

    def _read(self) -> dict[str, int]:
        keys = self._db.execute("SELECT name, id, spoilt FROM label_keys").fetchall()
        self._spoilt = {number for _, number, spoilt in keys if spoilt}
        self._words = {number: {} for _, number, _ in keys}
        for key, word, number in self._db.execute("SELECT key, word, id FROM label_words"):
            self._words[key][word] = number
        self._keys = {name: number for name, number, _ in keys}
        return self._keys

    def _number(self, keys: dict[str, int], key: str, word: str) -> int | None:
        """Number of a word; None for a full key, and for one key too many."""
        owner = keys.get(key)
        if owner is None:
            if len(keys.keys() - OWN) >= MOST_KEYS and key not in OWN:
                return None
            owner = keys[key] = self._insert("label_keys (name, spoilt)", key, 0)
            self._words[owner] = {}
        if owner in self._spoilt:
            return None
        words = self._words[owner]
        if word not in words:
            if len(words) >= MOST_WORDS:
                self._spoil(owner)
                return None
            words[word] = self._insert("label_words (key, word)", owner, word)
        return words[word]

    def _spoil(self, key: int) -> None:
        self._db.execute("UPDATE label_keys SET spoilt = 1 WHERE id = ?", (key,))
        of_key = "(SELECT id FROM label_words WHERE key = ?)"
        self._db.execute(f"DELETE FROM labels WHERE word IN {of_key}", (key,))
        self._db.execute("DELETE FROM label_words WHERE key = ?", (key,))
        self._spoilt.add(key)
        self._words[key] = {}

    def _insert(self, into: str, *values: object) -> int:
        found = self._db.execute(f"INSERT INTO {into} VALUES (?, ?)", values).lastrowid
        assert found is not None
        return found


A_WORD = (
    "(SELECT label_words.id FROM label_words JOIN label_keys ON label_keys.id = key"
    " WHERE label_keys.name = ? AND label_words.word = ?)"
)
"""The number of a word, as SQL: its values are the key and the word."""


def label_choices(db: sqlite3.Connection) -> list[Choice]:
    """What rows can be filtered and grouped by: the reasons of a mask, and keys of two words and
    more."""
    counted = db.execute(
        "SELECT label_keys.name, label_words.id, word, rows FROM label_words"
        " JOIN label_keys ON label_keys.id = label_words.key ORDER BY rows DESC, word"
    )
    words: dict[str, list[LabelWord]] = {}
    for key, number, name, rows in counted:
        words.setdefault(key, []).append(LabelWord(number=number, name=name, rows=rows))
    told = [
        Choice(key=key, words=tuple(own[:SHOWN_WORDS]), more=max(len(own) - SHOWN_WORDS, 0))
        for key, own in words.items()
        if key == MASKED or len(own) > 1
    ]
    told.sort(key=lambda one: (one.key != MASKED, -sum(word.rows for word in one.words), one.key))
    return told[: SHOWN_KEYS + 1]
