"""How alike two texts are by their words: the cosine of TF-IDF vectors.

Smoothed idf ln((1 + n) / (1 + df)) + 1, raw counts as tf, L2 norm. Words have two characters or
more, in lower case; English stop words are left out (SEARL, equation 9 and its released retrieval).

Texts are read once and are never removed. The idf and the lengths depend on the number of texts, so
an index of the first `count` texts computes them, vectorised. The result does not depend on how
many texts came at a time. A query touches only the lists of its own words.
"""

from __future__ import annotations

import math
import re
import threading
from array import array
from collections import Counter
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

LONGEST = 4096
"""Characters of a text that are read: a question of a megabyte costs no more."""

_WORD = re.compile(r"\w\w+")

_STOP = """a about above after again against all also am an and any are as at be because been before
being below between both but by can cannot could did do does doing down during each either else
ever every few for from further had has have having he her here hers herself him himself his
how however i if in into is it its itself just least less made many may me might more most much
must my myself neither no nor not now of off often on once only onto or other others our ours
ourselves out over own per perhaps rather same shall she should since so some such than that
the their theirs them themselves then there these they this those through thus to too toward
under until up upon us very was we well were what whatever when where whether which while who
whom whose why will with within without would yet you your yours yourself yourselves"""
STOP_WORDS = frozenset(_STOP.split())


def words(text: str) -> list[str]:
    """The words that count."""
    found = _WORD.findall(text[:LONGEST].lower())
    return [word for word in found if word not in STOP_WORDS]


class Texts:
    """All added texts, by their places. Thread-safe."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._ids: dict[str, int] = {"": 0}
        # Entries of a text lie side by side. The first entry belongs to no word, so no text is
        # empty.
        self._words, self._times = array("i"), array("d")
        self._starts = array("q")
        self._lists: list[tuple[array[int], array[float]]] = [(array("q"), array("d"))]
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, text: str) -> None:
        """Adds the text at the next place."""
        counts = Counter(words(text))
        with self._lock:
            place = len(self._starts)
            self._starts.append(len(self._words))
            self._words.append(0)
            self._times.append(0.0)
            for word, times in counts.items():
                number = self._ids.setdefault(word, len(self._ids))
                if number == len(self._lists):
                    self._lists.append((array("q"), array("d")))
                self._words.append(number)
                self._times.append(times)
                places, all_times = self._lists[number]
                places.append(place)
                all_times.append(times)

    def entries(self, count: int) -> tuple[Places, Places, Scores]:
        """(start of each text, word of each entry, times of each entry) of the first texts."""
        with self._lock:
            end = self._starts[count] if count < len(self._starts) else len(self._words)
            return (
                np.array(self._starts[:count], dtype=np.int64),
                np.array(self._words[:end], dtype=np.int64),
                np.array(self._times[:end], dtype=np.float64),
            )

    def places(self, word: str, count: int) -> tuple[int, Places, Scores]:
        """(number of the word, places among the first texts that have it, times there)."""
        with self._lock:
            number = self._ids.get(word, 0)
            places, times = self._lists[number]
            found = np.array(places, dtype=np.int64)
            kept = int(np.searchsorted(found, count))
            return number, found[:kept], np.array(times, dtype=np.float64)[:kept]


class TextIndex:
    """The first `count` texts without those at the places `gone`, ready for queries."""

    def __init__(self, texts: Texts, count: int, gone: Places | None = None) -> None:
        self._texts, self._count = texts, count
        there = np.ones(count)
        if gone is not None:
            there[gone] = 0
        starts, entry_words, times = texts.entries(count)
        if not count:
            self._idf = self._inverse = np.zeros(0)
            return
        sizes = np.diff(starts, append=len(entry_words))
        seen = np.bincount(entry_words, weights=np.repeat(there, sizes)).astype(np.int64)
        seen[0] = 0
        size = int(there.sum())
        idf_of = np.zeros(int(seen.max(initial=0)) + 1)
        for df in np.flatnonzero(np.bincount(seen)):  # few values; math.log is portable
            idf_of[df] = math.log((1 + size) / (1 + df)) + 1 if df else 0.0
        self._idf = idf_of[seen]
        lengths = np.sqrt(np.add.reduceat((times * self._idf[entry_words]) ** 2, starts))
        self._inverse = np.where(lengths > 0, there / np.where(lengths > 0, lengths, 1.0), 0.0)

    def scores(self, query: str) -> Scores:
        """[count]: cosine with each text, in [0, 1]; all 0 for a query without a known word, and
        for a text that is gone."""
        scores = np.zeros(self._count)
        known = []
        for word, times in Counter(words(query)).items():
            number, places, own = self._texts.places(word, self._count)
            if number and number < len(self._idf) and self._idf[number] > 0:
                known.append((times * float(self._idf[number]), number, places, own))
        length = math.sqrt(math.fsum(weight * weight for weight, *_ in known))
        for weight, number, places, own in known:
            scores[places] += own * (self._idf[number] * weight / length)
        scores *= self._inverse
        return scores
