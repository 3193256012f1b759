"""Texts to vectors: the paper's encoder, and one without weights for tests and offline use.

An embedder is a function from texts to float32 [n, d], rows of length 1, or 0 for a text without
words. A text's row does not depend on other texts or on their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memory.errors import Unusable
from memory.search.text import words

Embedder = Callable[[Sequence[str]], npt.NDArray[np.float32]]

HASH_WIDTH = 256


def embedder(name: str) -> tuple[str, Callable[[], Embedder]]:
    """(the name that a memory keeps, a function that makes the embedder).

    name: hashing, minilm, or a sentence-transformers folder. A folder is named by its weights, so
    that it may be moved. Raises Unusable; the returned function, which loads the weights, raises it
    too.
    """
    if name == "hashing":
        return name, lambda: hashing
    from memory.search import sentences

    if name == "minilm":
        return name, lambda: sentences.SentenceEmbedder(sentences.minilm_folder())
    folder = Path(name)
    if not folder.is_dir():
        raise Unusable(
            f"{name!r} is not an embedder: name hashing, minilm, or the folder of a "
            "sentence-transformers model"
        )
    own = f"{folder.resolve().name} {sentences.fingerprint(folder)}"
    return own, lambda: sentences.SentenceEmbedder(folder)


def hashing(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Signed feature hashing of words and of their neighbours; a text without words is zeros.

    No weights, no network: texts with the same words are alike, synonyms are not.
    """
    out = np.zeros((len(texts), HASH_WIDTH), dtype=np.float32)
    for row, text in zip(out, texts, strict=True):
        found = words(text)
        pairs = [f"{one} {other}" for one, other in pairwise(found)]
        for feature, weight in [*((w, 1.0) for w in found), *((p, 0.5) for p in pairs)]:
            digest = int.from_bytes(blake2b(feature.encode(), digest_size=8).digest(), "little")
            row[digest % HASH_WIDTH] += weight if digest >> 63 else -weight
        length = float(np.linalg.norm(row))
        if length > 0:
            row /= length
    return out
