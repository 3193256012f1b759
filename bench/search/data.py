"""The corpus, the vectors and the queries, all from one seed; pure.

Text. About 60 words a passage, words drawn by the Zipf-Mandelbrot law p(rank) ~ 1 / (rank + 2.7)
(Mandelbrot 1953), as English has them. The commonest are English function words, which a BM25
index leaves out, the others are made of syllables. A query is seven words of one passage.

Clustered vectors. 500 centres in 32 dimensions, points around them, turned into the vectors'
dimensions by orthonormal directions, plus noise in all of them, scaled to length 1: as an encoder's
vectors, whose dimension of variation is far below their number. Queries come from the same mixture.

Isotropic vectors. Independent directions: the worst case of every approximate index, since the
nearest neighbour is hardly nearer than any other point.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from bm25s.stopwords import STOPWORDS_EN  # type: ignore[import-untyped]
from numpy.typing import NDArray

VOCABULARY = 50_000
WORDS = 60
WORDS_SPREAD = 10
QUERY_WORDS = 7
MANDELBROT = 2.7
# The stop words of the index, so that they are left out as those of English text are.
FUNCTION_WORDS = STOPWORDS_EN

DIMENSIONS = 384
"""Dimensions of a vector, as of MiniLM; E5-base has 768."""
CLUSTERS = 500
LATENT = 32
SPREAD = 0.5
"""Standard deviation of a cluster, in standard deviations of the centres."""
NOISE = 0.1
"""Noise in each of DIMENSIONS dimensions, in the same unit: a tenth of the squared length. More
dimensions have less noise each, so that this share stays."""
PIECE = 1 << 16
"""Vectors that are made at once. A million of 768 dimensions takes 3 GB, and its making three times
as much."""

Vectors = NDArray[np.float32]
Draw = Callable[[int], Vectors]
"""Draws [count, dimensions] new vectors; rows have length 1."""

_SYLLABLES = [a + b for a in "bcdfghjklmnprstvwz" for b in "aeiou"]


def vocabulary() -> list[str]:
    """Different words, commonest first."""
    made: list[str] = []
    number = 0
    while len(made) < VOCABULARY - len(FUNCTION_WORDS):
        number += 1
        word, rest = "", number * 7919  # a prime: neighbours in rank do not look alike
        for _ in range(3):
            word += _SYLLABLES[rest % len(_SYLLABLES)]
            rest //= len(_SYLLABLES)
        made.append(word)
    return [*FUNCTION_WORDS, *made]


def passages(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Title and text. A title ends in the passage's number, so that an observation tells which
    passages were found."""
    rng = np.random.default_rng((seed, 1))
    words = np.array(vocabulary())
    cumulative = np.cumsum(1.0 / (np.arange(1, VOCABULARY + 1) + MANDELBROT))
    lengths = np.maximum(1, rng.normal(WORDS, WORDS_SPREAD, count).round().astype(int))
    for row, length in enumerate(lengths.tolist()):
        ranks = np.searchsorted(cumulative, rng.random(length) * cumulative[-1])
        drawn = words[ranks].tolist()
        yield f"{max(drawn, key=len).capitalize()} {row}", " ".join(drawn)


def write_corpus(path: Path, count: int, seed: int) -> list[str]:
    """The corpus in Search-R1's layout; returns the texts, for the queries."""
    texts = []
    with path.open("w", encoding="utf-8") as file:
        for row, (title, text) in enumerate(passages(count, seed)):
            texts.append(text)
            line = {"id": str(row), "contents": f'"{title}"\n{text}'}
            file.write(json.dumps(line) + "\n")
    return texts


def queries(texts: list[str], count: int, seed: int) -> list[str]:
    """Seven words each, in their order, out of a passage of its own."""
    rng = np.random.default_rng((seed, 2))
    found = []
    for row in rng.integers(len(texts), size=count).tolist():
        words = texts[row].split()
        chosen = sorted(rng.permutation(len(words))[:QUERY_WORDS].tolist())
        found.append(" ".join(words[place] for place in chosen))
    return found


def clustered(seed: int, dimensions: int = DIMENSIONS) -> Draw:
    """Draws vectors that have near neighbours."""
    rng = np.random.default_rng((seed, 3))
    centres = rng.standard_normal((CLUSTERS, LATENT), np.float32)
    directions = np.linalg.qr(rng.standard_normal((dimensions, LATENT)))[0].T.astype(np.float32)
    share = np.float32(NOISE * math.sqrt(DIMENSIONS / dimensions))

    def draw(size: int) -> Vectors:
        latent = centres[rng.integers(CLUSTERS, size=size)]
        latent = latent + SPREAD * rng.standard_normal((size, LATENT), np.float32)
        noise = share * rng.standard_normal((size, dimensions), np.float32)
        return unit(latent @ directions + noise)

    return draw


def isotropic(seed: int, dimensions: int = DIMENSIONS) -> Draw:
    """Draws vectors without any structure."""
    rng = np.random.default_rng((seed, 4))
    return lambda size: unit(rng.standard_normal((size, dimensions), np.float32))


def unit(vectors: Vectors) -> Vectors:
    """Every row at length 1."""
    scaled: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


def write_vectors(path: Path, draw: Draw, count: int, wanted: Vectors, k: int) -> NDArray[np.int64]:
    """`count` vectors to a .npy file, a piece at a time. Returns, for each row of `wanted`, which k
    of them have the highest inner product, in no order: [queries, k]."""
    shape = (count, wanted.shape[1])
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    best = np.full((len(wanted), k), -np.inf, np.float32)
    rows = np.full((len(wanted), k), -1, np.int64)
    for first in range(0, count, PIECE):
        piece = draw(min(PIECE, count - first))
        file[first : first + len(piece)] = piece
        numbers = np.broadcast_to(np.arange(first, first + len(piece)), (len(wanted), len(piece)))
        scores = np.concatenate([best, wanted @ piece.T], axis=1)
        chosen = np.argpartition(scores, -k, axis=1)[:, -k:]
        best = np.take_along_axis(scores, chosen, axis=1)
        rows = np.take_along_axis(np.concatenate([rows, numbers], axis=1), chosen, axis=1)
    file.flush()
    return rows
