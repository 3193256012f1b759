"""Lexical retrieval: BM25 by `bm25s`, whose scores are computed when the index is built (Lù 2024,
arXiv 2407.03618), so that a query only adds up the postings of its words.

The choice of the best k is our own, see `best`.
"""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import bm25s  # type: ignore[import-untyped]
import numpy as np
import Stemmer  # type: ignore[import-not-found]
from bm25s.tokenization import Tokenized, Tokenizer  # type: ignore[import-untyped]
from numpy.typing import NDArray

from toolsvc.backends.search.manifest import Bm25Facts
from toolsvc.backends.search.ranking import words
from toolsvc.backends.search.types import Rankings

QUERY_WORDS = 64
"""Words of a query that count, from its beginning, without stop words. Time is in proportion to
their number, and the whole batch waits for it."""
_BLOCK = 64


def build(
    texts: Iterable[str],
    folder: Path,
    facts: Bm25Facts,
    progress: Callable[[int], object] = lambda done: None,
) -> None:
    """Writes the index of `texts` to `folder`, which is there only if it is whole.

    Takes some 40 bytes of memory a word of the texts (measured on 6 million).
    """
    tokenizer = _tokenizer(facts)
    ids = []
    # Arrays: lists of Python numbers would take eight times the memory.
    for row, tokens in enumerate(tokenizer.streaming_tokenize(texts), start=1):
        ids.append(array("i", tokens))
        progress(row)
    index = bm25s.BM25(k1=facts.k1, b=facts.b, method=facts.method)
    index.index(Tokenized(ids=ids, vocab=tokenizer.get_vocab_dict()), show_progress=False)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    index.save(partial, show_progress=False)
    partial.replace(folder)


class Bm25:
    """A built index. Postings stay on disk and are mapped; the vocabulary is in memory."""

    def __init__(self, folder: Path, facts: Bm25Facts) -> None:
        index = bm25s.BM25.load(folder, mmap=True, show_progress=False)
        # Plain arrays over the mapped memory: a memmap object costs microseconds at every slice.
        for name in ("data", "indices", "indptr"):
            index.scores[name] = np.asarray(index.scores[name])
        self._index = index
        self._vocabulary: dict[str, int] = index.vocab_dict
        self._split = _Words(facts)

    def __len__(self) -> int:
        return int(self._index.scores["num_docs"])

    def search(self, texts: Sequence[str], k: int) -> Rankings:
        """The best `k` passages that share a word with the query; may be fewer."""
        rows = np.full((len(texts), k), -1, np.int64)
        scores = np.zeros((len(texts), k), np.float32)
        for number, text in enumerate(texts):
            found_words = self._split(text)
            known = [self._vocabulary[word] for word in found_words if word in self._vocabulary]
            if known:
                all_scores = self._index.get_scores_from_ids(known)
                found = best(all_scores, k)
                rows[number, : len(found)] = found
                scores[number, : len(found)] = all_scores[found]
        return Rankings(rows, scores)


def best(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Rows of the `k` highest scores above 0, best first, the lower row first among equals.

    `bm25s` partitions the whole array, which takes ten times as long as adding up the postings:
    most scores are 0, and equal values are what quickselect is slow at. Here the k-th highest of
    the maxima of blocks of 64 is a lower bound of the k-th highest score, and only what reaches it
    is sorted.
    """
    blocks = len(scores) // _BLOCK
    bound = np.float32(0)
    if blocks >= k:
        maxima = scores[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
        bound = np.partition(maxima, -k)[-k]
    candidates = np.flatnonzero((scores >= bound) & (scores > 0))
    order = np.lexsort((candidates, -scores[candidates]))
    chosen: NDArray[np.int64] = candidates[order[:k]]
    return chosen


def _tokenizer(facts: Bm25Facts) -> Any:
    return Tokenizer(
        lower=False,
        splitter=words.split,
        stemmer=Stemmer.Stemmer(facts.stemmer),
        stopwords=facts.stopwords,
    )


class _Words:
    """Text to stems, as the index was built.

    Not the tokenizer of the build: that one remembers every word that it ever saw.
    """

    def __init__(self, facts: Bm25Facts) -> None:
        tokenizer = _tokenizer(facts)
        self._stopwords = frozenset(tokenizer.stopwords)
        self._stem = tokenizer.stemmer

    def __call__(self, text: str) -> list[str]:
        found = words.split(text, query=True)
        kept = (word for word in found if word not in self._stopwords)
        return [self._stem(word) for word in islice(kept, QUERY_WORDS)]
