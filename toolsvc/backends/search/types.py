"""The words of retrieval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
"""[count, dimensions], rows of length 1, so that the inner product is the cosine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One line of the corpus. `contents` is the title in quotation marks, a newline, the text."""

    id: str
    contents: str

    @property
    def title(self) -> str:
        """The first line without its quotation marks."""
        return self.contents.partition("\n")[0].strip().strip('"')

    @property
    def text(self) -> str:
        """All but the first line."""
        return self.contents.partition("\n")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is looked for: its words, and its vector where the caller has it already ([dimensions],
    of any length above 0)."""

    text: str
    vector: NDArray[np.float32] | None = None


class Hit(NamedTuple):
    """A passage that was found; higher scores are better, their scale is the retriever's own."""

    passage: Passage
    score: float


class Rankings(NamedTuple):
    """Rankings of a batch of queries, best first. Row -1 = no more hits."""

    rows: NDArray[np.int64]
    """[queries, k], line numbers of the corpus from 0."""
    scores: NDArray[np.float32]
    """[queries, k]."""
